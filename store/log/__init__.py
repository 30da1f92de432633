"""The commit log: windows, the scan that finds records and passes damage, batches, messages.

Writing and cutting a log are here, too. It may use `output` and all below it.
"""
