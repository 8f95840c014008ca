"""Inputs that want to overwhelm or mislead: models, arrays and arguments, each by one small function.

`case.py` says what a case is, `harness.py` runs it as the command line would be run and judges what came of it. The
other files hold the cases, one file a kind; `__main__.py` (`make hostile`) runs all of them. To add one, write a
function with the decorator of its file; to add a kind, write a file and name it in `corpus.py`.
"""
