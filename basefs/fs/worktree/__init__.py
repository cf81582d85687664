"""The worktree: a real directory that is kept equal to the view, in both directions (docs/fs.md)."""
