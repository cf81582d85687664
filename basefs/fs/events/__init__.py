"""Events: reactions to the changes of the view, local and remote (paper, section 4.1.1; docs/reacting.md).

`runner` starts a `handler` for each `event` that its `rules` match, from a `queue` without I/O.  `journal` numbers the
events, and `feed` streams them to each reader of `basefs watch` at its own pace.
"""
