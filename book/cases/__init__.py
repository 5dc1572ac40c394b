"""The case studies of the DepHDP paper, as far as its tables let one infer how they were set up.

The paper leaves parts of its experiments open. A *reading* fills the gaps; those here are the ones
under which the published baselines come out, or come closest. Chapters that use them say so.
"""
