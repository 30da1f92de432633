"""What jobs give: directories that are staged, filled, replaced, published at once or not at all; HTML tables.

None of the directories is a broker's store. It may use `disk` and all below it.
"""
