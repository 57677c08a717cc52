"""Equations for the tests of `contract`: subscripts and shapes of operands, ``ij,jk,->ik 3x4 4x5 -``; ``-`` has no axes."""

from __future__ import annotations

_ONE = """
i->i 5 | i-> 5 | i 5 | -> - | ij->ij 3x4 | ij->ji 3x4 | ji 3x4 | ij->i 3x4 | ij->j 3x4 | ij-> 3x4 | ij 3x4
ijk->kji 2x3x4 | ijk->kij 2x3x4 | ijk->jik 2x3x4 | ijk->ik 2x3x4 | ijk->ki 2x3x4 | ijk->j 2x3x4 | ijk-> 2x3x4 | ii-> 4x4
ii->i 4x4 | ii 4x4 | iii->i 3x3x3 | iii-> 3x3x3 | iij->ij 3x3x4 | iij->j 3x3x4 | iji->ij 3x4x3 | iji->ji 3x4x3
iijj->ij 3x3x2x2 | iijj->ji 3x3x2x2 | ijij->ij 3x2x3x2 | iijj-> 3x3x2x2 | abcd->dcba 2x3x4x5 | abcd->bd 2x3x4x5
abcd->acbd 2x3x4x5 | abcd->cdab 2x3x4x5 | abcde->ace 2x3x2x3x2 | abcdef->fbd 2x3x2x3x2x3 | aabb->ba 2x2x3x3 | ... 2x3
...-> - | ...->... 2x3 | i...->...i 2x3x4 | ...i->i... 2x3x4 | ...i->... 2x3x4 | i...->i... 2 | ...ij->...ji 2x3x4
...ii->...i 2x3x3 | ...ii->... 2x3x3 | ii...->i... 3x3x2 | ...ijk->...kj 2x3x4x5 | a...b->b...a 2x3x4x5
i...j->... 2x3x4
"""

_TWO = """
i,i-> 5 5 | i,i 5 5 | i,i->i 5 5 | i,j->ij 3 4 | i,j->ji 3 4 | i,j-> 3 4 | i,j->i 3 4 | ,i->i - 5 | i,->i 5 - | ,-> - -
, - - | ,ij->ji - 3x4 | ij,jk->ik 3x4 4x5 | ij,jk->ki 3x4 4x5 | ji,jk->ik 4x3 4x5 | ij,kj->ik 3x4 5x4
ji,kj->ik 4x3 5x4 | ij,jk 3x4 4x5 | ij,jk-> 3x4 4x5 | ij,jk->j 3x4 4x5 | ij,jk->ijk 3x4 4x5 | ij,jk->i 3x4 4x5
ij,jk->k 3x4 4x5 | ij,ij-> 3x4 3x4 | ij,ij->ij 3x4 3x4 | ij,ij->i 3x4 3x4 | ij,ij->j 3x4 3x4 | ij,ji-> 3x4 4x3
ij,ji->ij 3x4 4x3 | ij,ji->i 3x4 4x3 | ij,j->i 3x4 4 | ij,i->j 3x4 3 | i,ij->j 3 3x4 | ij,j->ij 3x4 4 | ij,i->ij 3x4 3
ij,j-> 3x4 4 | ij,i-> 3x4 3 | i,ij 3 3x4 | bij,bjk->bik 2x3x4 2x4x5 | bij,bjk->ibk 2x3x4 2x4x5
bij,bkj->bik 2x3x4 2x5x4 | bij,bjk->ik 2x3x4 2x4x5 | bij,jk->bik 2x3x4 4x5 | ij,bjk->bik 3x4 2x4x5
ijb,jkb->ikb 3x4x2 4x5x2 | ibj,jbk->bik 3x2x4 4x2x5 | bij,bij->b 2x3x4 2x3x4 | bij,bij->bi 2x3x4 2x3x4
abc,bcd->ad 2x3x4 3x4x5 | abc,cbd->ad 2x3x4 4x3x5 | abc,dcb->ad 2x3x4 5x4x3 | abcd,cdef->abef 2x3x4x2 4x2x3x2
abcd,dcef->abef 2x3x4x2 2x4x3x2 | abcd,efcd->abef 2x3x4x2 3x2x4x2 | abcd,cdef->efab 2x3x4x2 4x2x3x2
abcd,bcde->ae 2x3x4x2 3x4x2x3 | abc,abc-> 2x3x4 2x3x4 | abc,cba-> 2x3x4 4x3x2 | abc,ab->c 2x3x4 2x3 | abc,b->ac 2x3x4 3
abc,c->ab 2x3x4 4 | abc,a->bc 2x3x4 2 | abc,ac->b 2x3x4 2x4 | abc,ac->abc 2x3x4 2x4 | ab,cd->abcd 2x3 4x2
ab,cd->acbd 2x3 4x2 | ab,cd->dcba 2x3 4x2 | ab,cd-> 2x3 4x2 | ab,cd->ad 2x3 4x2 | abcd,abcd->ac 2x3x4x2 2x3x4x2
abcd,ac->bd 2x3x4x2 2x4 | abcd,db->ca 2x3x4x2 2x3 | efgh,hg->ef 2x3x4x2 2x4 | ii,i-> 4x4 4 | ii,i->i 4x4 4
ii,ij->j 4x4 4x3 | ii,jj->ij 4x4 3x3 | ii,jj-> 4x4 3x3 | ii,ii-> 4x4 4x4 | ij,ii->ji 4x3 4x4 | iij,jk->ik 3x3x4 4x5
iji,j->i 3x4x3 4 | iij,ij->j 3x3x4 3x4 | aab,bcc->ac 2x2x3 3x4x4 | ab,ab,->ab 2x3 2x3 - | ...i,...i->... 2x3x5 2x3x5
...i,...i->... 3x1x5 1x4x5 | ...ij,...jk->...ik 2x3x4 2x4x5 | ...ij,...jk->...ik 1x3x4 2x4x5
...ij,...jk->...ik 2x3x4 4x5 | ...ij,jk->...ik 2x3x4 4x5 | ij,...jk->...ik 3x4 2x4x5 | ...ij,...j->...i 2x3x4x5 5
...,... 2x3 2x3 | ...,... 2x1 1x3 | ...,...->... - 2x3 | ...i,i->... 2x3x4 4 | i...,i...->... 4x2x3 4x2x3
i...,i...->... 4x2x3 4x3 | k...,jk 3x2 4x3 | ...a,...b->...ab 2x3 2x4 | a...,b...->ab... 3x2 4x2 | ...ab,...bc 2x3x4 4x5
a...b,b...->a... 2x3x4 4x3 | ...i,...j->i...j 2x3 2x4 | ...,i->...i 2x3 4 | i,...->i... 4 2x3 | ...ii,...i->... 2x3x3 3
...ij,...ji->... 2x3x4 2x4x3 | ij,jk->ik 3x1 4x5 | ij,jk->ik 1x4 4x1 | ij,jk->ik 1x1 1x1 | ij,ij->ij 3x1 1x4
ij,ij->ij 1x4 3x4 | ij,ij-> 3x1 3x4 | i,i->i 1 5 | ijk,ijk->ik 1x3x4 2x1x4 | ij,jk->ik 3x4 1x5 | ii,i->i 1x1 4
ij,i->ij 3x4 1 | i,ij->j 1 3x4 | abc,cd->abd 2x1x3 3x1 | ij,jk->ik 0x4 4x5 | ij,jk->ik 3x0 0x5 | ij,jk->ik 3x4 4x0
i,i-> 0 0 | i,j->ij 0 3 | ij->j 0x3 | ij->i 0x3 | ij-> 0x3 | i,i->i 1 0 | ii-> 0x0 | ii->i 0x0 | ...i,...i->... 2x0 2x0
...i,...i->... 0x3 0x3 | ij,jk->ik 3x0 1x5 | ,i->i - 0 | ij,ij->ij 0x4 1x4
"""

_MANY = """
i,i,i-> 5 5 5 | i,i,i->i 5 5 5 | i,j,k->ijk 2 3 4 | i,j,k->kji 2 3 4 | i,j,k-> 2 3 4 | ,,-> - - - | i,,j->ji 2 - 3
ij,jk,kl->il 3x4 4x5 5x2 | ij,jk,kl 3x4 4x5 5x2 | ij,jk,ki-> 3x4 4x5 5x3 | ij,j,jk->ik 3x4 4 4x5 | i,ij,j-> 3 3x4 4
ij,ik,il->jkl 3x2 3x4 3x5 | ab,ac,ad->bcd 3x2 3x4 3x5 | abc,bd,cd->ad 2x3x4 3x5 4x5 | abc,ad,be->cde 2x3x4 2x5 3x2
xre,rij,ej->xei 3x3x7 3x4x4 7x4 | ifj,fe,fej->ei 4x4x3 4x7 4x7x3 | ea,ab,eb->e 7x3 3x3 7x3 | ij,ij,ij->i 3x4 3x4 3x4
ii,ij,jj->j 3x3 3x4 4x4 | ...i,...ij,...j->... 2x3 2x3x4 2x4 | ...i,...ij,...j->... 2x3 3x4 1x4
...,i,...->...i 2x3 4 3 | i...,...j,k->ijk... 2x3 3x4 2 | ij,jk,kl->il 3x0 0x5 5x2 | ij,jk,kl->il 3x1 4x5 1x2
a,ab,abc->abc 2 2x3 2x3x4 | a,ab,abc-> 2 2x3 2x3x4 | abc,a,b->c 2x3x4 2 3 | ab,bc,cd,de->ae 2x3 3x4 4x5 5x2
ab,bc,cd,da-> 2x3 3x4 4x5 5x2 | a,b,c,d->abcd 2 3 2 3 | a,a,a,a-> 5 5 5 5 | ab,ab,bc,bc->ac 2x3 2x3 3x4 3x4
abcd,ae,bf,cg->efgd 2x3x2x3 2x3 3x2 2x2 | ab,cd,ef,ab->cdef 2x3 2x2 3x2 2x3 | ij,jk,,kl->il 3x4 4x5 - 5x2
a,ab,bc,c-> 2 2x3 3x4 4 | pi,qj,rk,ijk->pqr 2x3 3x4 4x2 3x4x2 | abc,cde,efg,gab->bdf 2x3x4 4x3x2 2x3x4 4x2x3
...a,...b,...c,...d->...abcd 2x2 2x3 2x2 2x3 | ab,bc,cd,de,ef->af 2x3 3x4 4x2 2x3 3x4
eb,cb,fb,fb,db->dce 3x2 4x2 5x2 5x2 2x2 | ac,bc,dc,ec,fc->abdef 2x3 3x3 2x3 3x3 2x3 | a,b,c,d,e-> 2 3 4 2 3
ij,jk,kl,lm,mi-> 2x3 3x4 4x3 3x2 2x2 | dba,ead,cad->bce 2x3x4 3x4x2 5x4x2 | ab,cd,ac,bd,e->e 2x3 4x5 2x4 3x5 6
pi,qj,ijkl,rk,sl->pqrs 2x3 3x2 3x2x3x2 2x3 3x2 | ab,bc,cd,de,ef,fa-> 2x3 3x2 2x3 3x2 2x3 3x2
a,ab,b,bc,c,cd->d 2 2x3 3 3x4 4 4x2 | ab,bc,cd,de,ef,fg,gh->ah 2x3 3x2 2x3 3x2 2x3 3x2 2x3
abc,bcd,cde,def,efg,fgh->ah 2x3x2 3x2x3 2x3x2 3x2x3 2x3x2 3x2x3 | a,b,c,d,e,f,g,h->abcdefgh 2 2 2 2 2 2 2 2
ab,bc,cd,de,ef,fg,gh,ha-> 2x3 3x2 2x3 3x2 2x3 3x2 2x3 3x2
ab,bc,cd,de,ef,fg,gh,hi,ij->aj 2x3 3x2 2x3 3x2 2x3 3x2 2x3 3x2 2x3 | a,a,a,a,a,a,a,a,a,a->a 3 3 3 3 3 3 3 3 3 3
ab,bc,cd,de,ef,fg,gh,hi,ij,jk->ak 2x3 3x2 2x3 3x2 2x3 3x2 2x3 3x2 2x3 3x2
ab,ac,ad,ae,af,ag,ah,ai,aj,ak,al-> 2x2 2x2 2x2 2x2 2x2 2x2 2x2 2x2 2x2 2x2 2x2
a,b,c,d,e,f,g,h,i,j,k,l->abl 2 2 2 2 2 2 2 2 2 2 2 2
ab,bc,cd,de,ef,fg,gh,hi,ij,jk,kl,la-> 2x3 3x2 2x3 3x2 2x3 3x2 2x3 3x2 2x3 3x2 2x3 3x2
ab,bc,cd,de,ef,fg,gh,hi,ij,jk,kl,lm,mn->an 2x3 3x2 2x3 3x2 2x3 3x2 2x3 3x2 2x3 3x2 2x3 3x2 2x3 | aJ,Jb->ab 3x4 4x5
AbC,CdA->bd 2x3x4 4x5x2 | Z,a->aZ 2 3
"""


def _rows() -> list[tuple[str, list[tuple[int, ...]]]]:
    lines = (_ONE + _TWO + _MANY).replace("\n", "|").split("|")
    split = [line.split() for line in lines if line.strip()]
    return [(text, [() if x == "-" else tuple(map(int, x.split("x"))) for x in shapes]) for text, *shapes in split]


EQUATIONS = _rows()
