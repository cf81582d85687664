"""Files whose first name goes away while others stay."""

from __future__ import annotations

from basefs.log.entries import Action, Entry
from basefs.log.extensions import Extensions
from basefs.path import Path
from basefs.view.draft import Draft
from basefs.view.signer import Signer
from basefs.view.tree import Node, Tree


def leave(tree: Tree, signer: Signer, path: Path, node: Node, top: Path) -> list[Entry]:
    """The links by which the file at a path goes on under its other names; none if it did not begin there.

    A key that is granted where the file began, now or later, must not go on writing it.  Names that none of this node's
    keys may write stay as they are.

    Args:
        tree: what is shown.
        signer: signs.
        path: the name that goes away.
        node: what is there.
        top: what is here or below goes away as well.
    """
    draft = Draft()
    if node.is_directory or path != tree.first_name(node.state):
        return draft.entries
    end = tree.end_of(node)
    for other, name in tree.names_of(path, node):
        valid = signer.valid(name.authority)
        key = next((key for key in valid if tree.resolver.may_change(key.fingerprint, node.state)), None)
        if other[: len(top)] != top and key is not None and name.state.link is not None:
            tip, state = name.outcome.tips[0], name.state
            link = key.sign(tip.hash, signer.now(), Action.LINK, tip.name, end, Extensions(is_moved=True))
            draft.entries.append(link)
            # Not what is at the path: that may be a link that was made where the file had begun.
            shown = tree.resolver.state_after(end)
            draft.follow_with_mode(key, link, shown, state.mode, state.owner, state.mtime)
    return draft.entries
