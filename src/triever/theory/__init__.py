"""What theory says of dense and generative retrieval, as functions of arrays that can be checked.

The statements are those of the paper *Does Generative Retrieval Break Through the Limitations of Dense Retrieval?*, and
where they do not hold as printed, the nearest ones that do. docs/theory.md tells them apart.
"""
