"""The optimal mechanism: one door, several engines, a certificate for each answer."""
