"""What a job gives: directories staged, added to, replaced, published at once or not at all; tables of HTML.

None of the directories is a broker's store. It may use `disk` and all below it.
"""
