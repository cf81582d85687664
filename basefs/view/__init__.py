"""The view: the tree that the entries of a log define, without conflicts and without I/O (paper, section 3.1).

A `Walk` over the entries of one path applies the rules at each fork; the `Resolver` adds other paths and gives the
`outcome`; the `Tree` keeps outcomes up to date and reports each `Change`.  `Authority` decides which keys count.  The
`Author` turns requests into a `Draft`; `KeyHolder` and `Reverter` plan by `supposing`.  `history` and `past` read what
was.  docs/log.md has the details, docs/authority.md the rules.

Imports errors, path and log.
"""
