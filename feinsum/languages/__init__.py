"""Three small languages around einsums: their text is read, checked, printed and interpreted in rooms that they share.

A text becomes tokens (:mod:`.scanning`), tokens a typed program (one package for each language), and whatever is wrong a
list of :mod:`.diagnostics` with lines, columns and the rule that was broken.  No module here knows OpenCL.
"""
