"""HiGHS without a word on the console."""

import highspy


class QuietHighs(highspy.Highs):
    """HiGHS without its callbacks, whose set-up prints before it can be told not to."""

    def __init__(self):
        super().__init__()
        self.silent()

    def enableCallbacks(self):
        """Leave them out."""
