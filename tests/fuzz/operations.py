"""What a chain of operations is made of: expressions and statements with places to fill.

Leaves: templates, by how a line of a program uses them. In each, `a`, `b` and `c` stand for tensors
of the program, `{k}` and `{f}` for an integer and a float, `{d}` and `{e}` for dimensions.
Invariant: a template need not fit what it is given; the generator (`chains.py`) keeps the lines
that eager takes. Rows are drawn by their number: a new one makes other programs of the same seeds.
"""

from __future__ import annotations


def _rows(text: str) -> tuple[str, ...]:
    return tuple(one.strip() for one in text.split(";"))


# Of one tensor: arithmetic, dtypes, reductions, views, layouts, shapes, scalars, functions.
OF_ONE = _rows(
    """
    a+{f} ; a*{f} ; a-{k} ; {k}-a ; a/{f} ; a//{k} ; a%{k} ; a**2 ; -a ; a.abs() ; a.sin() ;
    a.exp().clamp(max=50) ; a.tanh() ; a.sigmoid() ; a.relu() ; F.gelu(a) ; F.silu(a) ; a.sqrt() ;
    a.square() ; a.log1p() ; a.sign() ; a.clamp(-{f},{f}) ; a.clamp(min={k}) ; a.reciprocal() ;
    a.erf() ; a.cos() ; a.atan() ; a.logical_not() ; a==a ; a>{f} ; a<{k} ; a!=0 ; a.isnan() ; ~a ;
    a.float() ; a.double() ; a.half() ; a.bfloat16() ; a.to(torch.int32) ; a.to(torch.int8) ;
    a.long() ; a.bool() ; a.to(torch.uint8) ; a.to(torch.complex64) ; a.real ; a.imag ; a.conj() ;
    a.angle() ; a.type_as(b) ; a.to(b) ; a.sum() ; a.sum({d}) ; a.sum({d},keepdim=True) ;
    a.mean({d}) ; a.mean() ; a.amax({d}) ; a.amin({d},keepdim=True) ; a.max({d})[0] ;
    a.max({d})[1] ; a.min() ; a.max() ; a.argmax({d}) ; a.argmin() ; a.prod({d}) ;
    a.var({d},unbiased=False) ; a.std({d}) ; a.norm(dim={d}) ; a.norm() ; a.logsumexp({d}) ;
    a.softmax({d}) ; a.log_softmax({d}) ; a.cumsum({d}) ; a.cumprod({d}) ; a.any({d}) ; a.all() ;
    a.all({d}) ; a.count_nonzero({d}) ; a.cummax({d})[0] ; a.cummin({d})[1] ; a.sort({d})[0] ;
    a.sort({d},stable=True)[1] ; a.argsort({d},stable=True) ; a.topk(1,{d})[0] ; a.median() ;
    a.median({d})[0] ; a.nansum({d}) ; a.logcumsumexp({d}) ; a.flip({d}).cumsum({d}) ;
    F.normalize(a,dim={d}) ; a.sum(dtype=torch.float64) ; a.var({d},correction=0,keepdim=True) ;
    a.kthvalue(1,{d})[0] ; a.mode({d})[0] ; a.aminmax()[1] ; a.diff(dim={d}) ;
    torch.linalg.vector_norm(a,dim={d}) ; a.renorm(2,0,1.5) ; a.t() ; a.mT ; a.transpose({d},{e}) ;
    a.unsqueeze({d}) ; a.squeeze() ; a.squeeze({d}) ; a.flatten() ; a.reshape(-1) ;
    a.reshape(a.shape[::-1]) ; a.view(a.shape) ; a.contiguous() ; a.clone() ; a[0] ; a[-1:] ;
    a[...,0] ; a[...,None] ; a[1:] ; a[::2] ; a[...,1:] ; a[...,::2] ; a.select({d},0) ;
    a.narrow({d},0,1) ; a.movedim({d},{e}) ; a.flip({d}) ; a.roll({k},{d}) ; a.rot90() ;
    a.expand(2,*a.shape) ; a.expand_as(b) ; a.repeat(2,*[1]*a.dim()) ; a.repeat_interleave(2,{d}) ;
    a.tile((2,)) ; a.chunk(2,{d})[0] ; a.chunk(2,{d})[-1] ; a.split(1,{d})[-1] ; a.unbind({d})[0] ;
    a.unfold({d},1,1) ; a.unfold({d},2,1) ; a.diagonal() ; a.diag() ; a.tril() ; a.triu(1) ;
    a.permute(*range(a.dim())[::-1]) ; a.swapaxes({d},{e}) ; a.unflatten({d},(-1,1)) ;
    a.as_strided((2,),(1,)) ; a.as_strided((a.numel(),),(1,)) ; a.detach() ; a.ravel() ;
    a.broadcast_to((2,*a.shape)) ; a.index_select({d},torch.tensor([0])) ;
    a.take(torch.tensor([0,0])) ; a.gather({d},torch.zeros_like(a,dtype=torch.long)) ;
    F.pad(a,(1,1)) ; F.pad(a,(1,-1),value={f}) ; a.new_zeros(a.shape)+a ; torch.zeros_like(a) ;
    torch.ones_like(a,dtype=torch.float32) ; torch.full_like(a,{k}) ; a.new_full((2,),{k}) ;
    a.masked_fill(a>{f},{k}) ; a.nan_to_num(0) ; a.view(torch.int32) ; a.view(*a.shape) ;
    torch.atleast_2d(a) ; torch.stack([a,a]) ; torch.stack([a,a*2],-1) ; torch.cat([a,a],{d}) ;
    torch.cat([a,a.flip(0)]) ; torch.hstack([a,a]) ; torch.meshgrid(a,a,indexing='ij')[0] ;
    a.outer(a) ; a.nonzero() ; a[a>{f}] ; a.unique() ; torch.bincount(a.abs()) ;
    torch.histc(a,4,-2,2) ; torch.bucketize(a,torch.tensor([-1.,0.,1.])) ;
    torch.searchsorted(torch.tensor([-1.,0.,1.]),a) ; F.one_hot(a.long().clamp(0,3),4) ;
    torch.arange(a.shape[0]) ; torch.arange(a.numel(),dtype=a.dtype) ;
    torch.linspace(0,1,a.shape[0]) ; a.item() if a.numel()==1 else a ; a.shape[0]*a ;
    a+a.shape[-1] ; a.numel()+a ; a*a.dim() ; torch.tensor(a.shape) ; a.sum().item()+a ;
    a.tolist() and a ; F.layer_norm(a,a.shape[-1:]) ; F.layer_norm(a.float(),a.shape[-1:]) ;
    F.group_norm(a,1) ; F.instance_norm(a) ; F.batch_norm(a,None,None,training=True) ;
    F.avg_pool1d(a,2) ; F.max_pool1d(a,2,padding=1) ; F.max_pool2d(a,2,ceil_mode=True) ;
    F.avg_pool2d(a,2,count_include_pad=False,padding=1) ; F.adaptive_avg_pool2d(a,2) ;
    F.adaptive_max_pool1d(a,2) ; F.interpolate(a[None,None],scale_factor=2) ;
    F.interpolate(a[None],size=5,mode='linear') ;
    F.interpolate(a,scale_factor=1.5,mode='bilinear') ;
    F.interpolate(a,size=(3,4),mode='bicubic',align_corners=True) ; F.unfold(a,2) ;
    F.pixel_shuffle(a,1) ; F.glu(a,{d}) ; F.softmin(a,{d}) ; F.local_response_norm(a,2) ;
    F.pad(a,(1,1),mode='reflect') ; F.pad(a,(1,0),mode='circular') ;
    F.pad(a,(0,1),mode='replicate') ; torch.fft.rfft(a) ; torch.fft.fft(a).real ;
    torch.fft.irfft(a) ; torch.fft.fftshift(a) ; torch.linalg.norm(a) ; a.trace() ;
    torch.vander(a) ; torch.cov(a) ; torch.corrcoef(a) ;
    torch.tril_indices(a.shape[0],a.shape[0]) ; torch.combinations(a) ; torch.block_diag(a,a) ;
    a.to(memory_format=torch.channels_last) ; a.contiguous(memory_format=torch.channels_last) ;
    a.fill_diagonal_(1) ; a.index_fill({d},torch.tensor([0]),{k}) ;
    torch.nn.functional.rms_norm(a,a.shape[-1:]) ; torch.logspace(0,1,a.shape[0]) ;
    a.quantile(0.5) ; a.quantile(0.25,{d}) ; a.msort() ; torch.special.expit(a) ;
    torch.special.entr(a) ; torch.special.i1(a) ; torch.polygamma(1,a) ; a.frexp()[0] ;
    torch.ldexp(a,a) ; torch.clip(a,b,c) ; a.view_as(b) ; a.addcmul(b,c,value={f}) ;
    a.addcdiv(b,c) ; a.lerp(b,{f}) ; torch.lerp(a,b,c)
    """
)

# Of two tensors, whose sizes and dtypes may differ.
OF_TWO = _rows(
    """
    a+b ; a-b ; a*b ; a/b ; a//b ; a%b ; torch.maximum(a,b) ; torch.minimum(a,b) ;
    torch.where(a>b,a,b) ; torch.where(a>0,a,{k}) ; torch.where(b>0,{f},a) ; a@b ; a@b.mT ;
    torch.matmul(a,b.t()) ; a.mm(b) ; F.linear(a,b) ; torch.einsum('i...,i...->...',a,b) ;
    torch.einsum('...i,...i',a,b) ; torch.einsum('ij,kj->ik',a,b) ; torch.bmm(a,b) ; a.dot(b) ;
    a.mv(b) ; torch.outer(a,b) ; a<b ; a>=b ; a==b ; a&b ; a|b ; a^b ; torch.add(a,b,alpha={k}) ;
    torch.sub(a,b,alpha={f}) ; torch.cat([a,b]) ; torch.cat([a,b],{d}) ; torch.stack([a,b]) ;
    torch.atan2(a,b) ; torch.fmod(a,b) ; torch.pow(a,b) ; a.copysign(b) ; torch.hypot(a,b) ;
    F.mse_loss(a,b) ; F.l1_loss(a,b,reduction='none') ; F.smooth_l1_loss(a,b) ;
    F.huber_loss(a,b,reduction='sum') ; F.binary_cross_entropy_with_logits(a,b) ;
    F.kl_div(a,b,reduction='sum') ; F.cosine_similarity(a,b,dim={d}) ; torch.cdist(a,b) ;
    F.pairwise_distance(a,b) ; torch.isclose(a,b) ; torch.equal(a,b) and a ;
    torch.allclose(a,b) or a ; a.masked_fill(b>0,{k}) ; a.masked_select(b>0) ; a[b>0] ;
    a[b.long().clamp(0,a.shape[0]-1)] ; a.index_select({d},b.long().flatten().clamp(0,0)) ;
    a.gather({d},b.long().clamp(0,0)) ; a.take_along_dim(b.long().clamp(0,0),{d}) ;
    a.scatter({d},b.long().clamp(0,0),{k}) ; a.scatter_add({d},b.long().clamp(0,0),b) ;
    a.index_add(0,torch.arange(b.shape[0]).clamp(max=a.shape[0]-1),b) ;
    a.scatter_reduce({d},b.long().clamp(0,0),b,'amax') ;
    F.embedding(b.long().clamp(0,a.shape[0]-1),a) ; torch.bucketize(a,b.flatten().sort()[0]) ;
    torch.isin(a,b) ; a.masked_scatter(b>0,a) ; torch.kron(a,b) ; torch.tensordot(a,b,1) ;
    torch.cross(a,b) ; F.conv1d(a[None,None],b[None,None]) ;
    F.conv2d(a[None,None],b[None,None],padding=1) ; F.conv2d(a,b) ;
    F.conv_transpose1d(a[None,None],b[None,None],stride=2) ; F.prelu(a,b.flatten()[:1]) ;
    F.cross_entropy(a,b.long().clamp(0,0)) ;
    F.nll_loss(a,b.flatten().long()[:a.shape[0]].clamp(0,0)) ;
    F.scaled_dot_product_attention(a,b,b) ; F.bilinear(a,b,torch.ones(2,a.shape[-1],b.shape[-1])) ;
    torch.addmm(a,b,b.t()) ; torch.baddbmm(a,b,b) ; torch.broadcast_tensors(a,b)[0] ;
    torch.heaviside(a,b) ; a.float_power(b) ; torch.logaddexp(a,b) ; torch.xlogy(a,b) ;
    torch.floor_divide(a,b) ; torch.div(a,b,rounding_mode='trunc') ;
    torch.bitwise_left_shift(a,b.clamp(0,3)) ; torch.gcd(a,b) ; torch.complex(a,b) ;
    torch.polar(a,b) ; torch.dist(a,b) ; torch.inner(a,b) ; torch.cartesian_prod(a,b) ;
    torch.column_stack([a,b]) ; torch.hstack((a,b)) ; torch.vstack((a,b)) ;
    torch.select_scatter(a,b,0,0) ; torch.slice_scatter(a,b,0,0,b.shape[0]) ;
    torch.diagonal_scatter(a,b) ;
    torch.index_reduce(a,0,torch.zeros(b.shape[0],dtype=torch.long),b,'prod') ;
    torch.put(a,b.long().clamp(0,0),b) ; F.multi_margin_loss(a,b.long().clamp(0,0)) ;
    F.hinge_embedding_loss(a,b) ; F.soft_margin_loss(a,b) ; F.poisson_nll_loss(a,b) ;
    F.gaussian_nll_loss(a,b,b.abs()+1) ; F.triplet_margin_loss(a,b,a) ;
    torch.nn.functional.embedding_bag(b.long().clamp(0,0),a)
    """
)

# Writes in place, through views, into results given by `out=`, and into what was detached.
WRITES = _rows(
    """
    a+=b ; a-=b ; a*=b ; a*={f} ; a+={k} ; a/=2 ; a//={k} ; a|=b ; a&=b ; a.add_(b) ; a.mul_({f}) ;
    a.sub_(b,alpha={k}) ; a.zero_() ; a.fill_({k}) ; a.copy_(b) ; a.clamp_(min={k}) ; a.relu_() ;
    a.neg_() ; a.sigmoid_() ; a.sqrt_() ; a[0]=b ; a[0]={k} ; a[...]=b ; a[1:]=b ; a[1:]+={k} ;
    a[::2]=b ; a[...,0]=b ; a[...,0]+=b ; a[a>0]={k} ; a[a>{f}]=b ; a[a>0]+=1 ; a[...,::2]*={f} ;
    a.t().add_(b) ; a.flatten().add_({k}) ; a.view(-1)[0]={k} ; a.view(-1)[::2].mul_({k}) ;
    a.diagonal().fill_({k}) ; a.masked_fill_(b>0,{k}) ; a.index_fill_({d},torch.tensor([0]),{k}) ;
    a.scatter_({d},b.long().clamp(0,0),{k}) ;
    a.index_add_(0,torch.zeros(b.shape[0],dtype=torch.long),b) ;
    a.index_put_((torch.tensor([0,0]),),b,accumulate=True) ; a[torch.tensor([0,-1])]=b ;
    a[torch.tensor([0,0])]+={k} ; a.transpose_({d},{e}) ; a.unsqueeze_({d}) ; a.squeeze_() ;
    a.t_() ; a.swapaxes_({d},{e}) ; a.select({d},0).copy_(b) ; a.narrow({d},0,1).add_({f}) ;
    a.expand(2,*a.shape)[0].add_(1) ; a.detach().mul_({f}) ; a.data.add_({k}) ;
    torch.add(a,b,out=a) ; torch.mul(b,b,out=a) ; torch.sum(b,out=a) ; torch.cat([b,b],out=a) ;
    torch.sort(b,out=(a,c)) ; a.cumsum_({d}) ; a.tril_() ; a.lerp_(b,{f}) ; a.addcmul_(b,b) ;
    a.clamp_max_(b) ; a.copysign_(b) ; a.logical_not_() ; a.exp_() ; a.round_() ; a.set_(b) ;
    a.fill_diagonal_({k}) ; a.put_(torch.tensor([0]),b.flatten()[:1]) ; a.swapdims_({d},{e}) ;
    a.unbind({d})[0].mul_({k}) ; a.chunk(2,{d})[0].zero_() ; a.split(1,{d})[-1].add_(b) ;
    a.as_strided((2,),(1,)).add_({k}) ; a.view(-1).as_strided((1,),(1,),0).mul_({f}) ;
    a.real.mul_({k}) ; a.imag.add_({f}) ; F.relu(a,inplace=True) ; F.hardtanh(a,inplace=True) ;
    F.dropout(a,0.0,inplace=True) ; F.threshold_(a,{f},{k}) ; a.requires_grad_(False) ;
    a.detach_() ; a.T[0]={k} ; a.mT.mul_({k}) ; a.xlogy_(b) ; torch._foreach_add_([a,b],1) ;
    torch._foreach_mul_([a],[b]) ; a.squeeze().add_({k}) ; a.movedim({d},{e}).add_(b) ;
    a.unfold({d},1,1).add_({k}) ; a.view(torch.int32).add_({k}) ; a.masked_scatter_(b>0,b) ;
    a.index_copy_(0,torch.tensor([0]),b[:1]) ; a.baddbmm_(b,b) ; a.addmm_(b,b) ;
    a.renorm_(2,0,1.0) ; a.bernoulli_(0.5) ; a.uniform_() ; a.normal_()
    """
)

# Random numbers: eager and compiled take the same ones.
RANDOM = _rows(
    """
    torch.rand_like(a) ; F.dropout(a,0.5) ; torch.randn(a.shape) ; torch.randperm(a.shape[0]) ;
    torch.bernoulli(a.clamp(0,1)) ; F.dropout(a,0.3,training=True)+a ; torch.randint_like(a,5) ;
    torch.rand(a.shape[0]).sum()+a ; torch.multinomial(a.abs()+0.1,1) ;
    F.alpha_dropout(a,0.4,True) ; F.feature_alpha_dropout(a,0.5,True)
    """
)
