"""Reports: what a tuning run found, as plots and as a page of html.

This room knows data types only: records, peaks and what :mod:`feinsum.search.importance` makes of records.
"""
