"""Ops that are called and refuse no data: whatever their operands hold, they answer.

Enters: nothing. Leaves: records in the registry. An op of which nobody says this may raise because
of its data, so its call is made although nobody reads what it answers (`Op.refuses`); these may be
dead. Invariant: what stands here was tried with NaN, infinities, negative and large numbers in
each operand (`tests/conformance/refused_data.py`).
"""

from __future__ import annotations

from windfall.ops.folding import op

_CALM = """
    _add_relu.Tensor _aminmax.default _aminmax.dim _batch_norm_with_update_functional.default
    _cdist_forward.default _chunk_cat.default _conj_physical.default _convolution.default
    _euclidean_dist.default _foreach_addcdiv.Tensor _foreach_addcmul.Tensor _foreach_clone.default
    _foreach_copy.default _foreach_lerp.ScalarList _foreach_max.default _foreach_norm.Scalar
    _foreach_pow.ScalarAndTensor _foreach_zero.default _fused_sdp_choice.default
    _int_mm.default _is_all_true.default _is_any_true.default _local_scalar_dense.default
    _masked_softmax.default _native_batch_norm_legit_no_training.default
    _pdist_forward.default _reshape_copy.default _scaled_mm.default _stack.default
    _to_sparse.default _to_sparse.sparse_dim _trilinear.default _unique2.default
    _unsafe_masked_index.default _unsafe_masked_index_put_accumulate.default
    _upsample_bicubic2d_aa.default _upsample_bilinear2d_aa.default
    _upsample_nearest_exact1d.default _upsample_nearest_exact2d.default
    _upsample_nearest_exact3d.default _weight_int8pack_mm.default _weight_norm_interface.default
    adaptive_max_pool3d.default addbmm.default affine_grid_generator.default allclose.default
    as_strided_copy.default bartlett_window.default bartlett_window.periodic
    blackman_window.default blackman_window.periodic block_diag.default bucketize.Scalar
    channel_shuffle.default cholesky_solve.default col2im.default conv_tbc.default dist.default
    empty_permuted.default equal.default fractional_max_pool2d.default
    fractional_max_pool3d.default glu_jvp.default grid_sampler_3d.default hamming_window.default
    hamming_window.periodic hann_window.default hann_window.periodic hash_tensor.default
    is_same_size.default isin.Scalar_Tensor isin.Tensor_Scalar isin.Tensor_Tensor
    kaiser_window.default kaiser_window.periodic ldexp.Tensor linalg_cross.default
    linalg_householder_product.default linalg_lu.default linalg_matrix_exp.default
    linalg_qr.default linalg_solve_triangular.default linspace.Scalar_Tensor
    linspace.Tensor_Scalar linspace.Tensor_Tensor logspace.Scalar_Tensor logspace.Tensor_Scalar
    logspace.Tensor_Tensor logspace.default masked_select.default mkldnn_convolution.default
    mvlgamma.default nonzero.default norm.ScalarOpt_dtype ormqr.default
    range.default range.step reflection_pad3d.default renorm.default replication_pad3d.default
    rot90.default triangular_solve.default
    tril_indices.default triu_indices.default unique_consecutive.default unique_dim.default
    upsample_linear1d.default upsample_nearest1d.default upsample_nearest3d.default
    upsample_trilinear3d.default
"""

for _name in _CALM.split():
    op(_name, None, refuses=False)
