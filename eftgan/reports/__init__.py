"""The report people read, made from a run's score lines alone; imports no torch."""

from eftgan.reports.write import write_report

__all__ = ["write_report"]
