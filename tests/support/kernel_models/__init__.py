"""The algebra of the CUDA kernels in NumPy, a module for a source: its steps, blocks and names, and nothing of CUDA.

What the lanes of a warp or the threads of a block hold is an axis here, so a sum over that axis stands for their
shuffles and barriers.  Numbers are computed in the dtype of the arguments.  The kernels may store 16 bits: they round
inputs, results, and what tensor cores multiply (attention's weights and the gradients of its scores), but no sum.

Not here, because they are the references' formulas in another order of addition: layer_norm.cu (but for who draws
which number), adam.cu, clip.cu, linear.cu.  Nor top_k.cu, which only compares numbers.  Nor the inverse of ranges,
which queries see a key: ``autograd.tiles`` computes it, in NumPy, for every device.  Nor which lane holds which number
of a fragment (mma.cuh), or how many numbers one access moves (common.cuh): that is CUDA.
"""
