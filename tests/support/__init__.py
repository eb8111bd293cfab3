"""Helpers shared by the tests. Nothing here imports `dataset_rt` when it is imported itself.

`sources`  made-up samples that any interpreter can make again from a short description
`tables`   edits of the active table that any interpreter can make again
`values`   comparable, JSON-friendly forms of samples and tables (floats by their bits)
`child`    running code in a child process with limits, so that a crash or a hang is a failed test
`disk`     small file systems that a test may fill
`damage`   the bytes of a record, and how to change them
`probe`    the child that opens caches and says what happened
`drt`      the library under test behind a few conveniences
"""
