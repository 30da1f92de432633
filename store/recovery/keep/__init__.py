"""The policy "keep": damage in the middle of a log costs the damaged records, nothing else.

Holes between good records are closed with tombstones, fillers and BLANKs, which every generation of
brokers walks over (measured with the real classes of six versions; design, "Plans"). A record whose
header alone is wrong is no hole: a queue's unit tells what stood there. All here is pure: from what
is on disk to data.
"""
