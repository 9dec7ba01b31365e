"""Files of language models: what their headers say, checked before anything of it is believed.

The registry reads them to refuse what can't be served, workers read them to serve; both say the same of the same file.
Pure but for reading; imports no service.
"""
