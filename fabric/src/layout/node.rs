//! The tree of a form.

use std::sync::Arc;

use super::copy::Copier;
use super::{Form, FormError, Units, is_multiple};

/// Places of bytes, relative to an origin.
#[derive(Clone, Debug)]
pub(super) enum Node {
    /// Contiguous bytes.
    Block(usize),
    /// Items of `size` bytes of data at a distance of `stride`.
    Strided { count: usize, stride: isize, size: usize, item: Arc<Node> },
    /// Blocks of bytes.
    Blocks(Arc<[Block]>),
    /// Items of several kinds.
    Parts(Arc<[Part]>),
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    at: isize,
    len: usize,
    /// The number of bytes of the message before this block.
    before: usize,
}

#[derive(Clone, Debug)]
pub(super) struct Part {
    at: isize,
    before: usize,
    node: Node,
}

impl Node {
    /// Returns the node of `count` repetitions of this node at a distance of `stride`. This node has `size` bytes of
    /// data.
    pub(super) fn strided(&self, count: usize, stride: isize, size: usize) -> Self {
        match self {
            _ if count == 1 => self.clone(),
            Self::Block(len) if len.cast_signed() == stride => Self::Block(len * count),
            // Two nested loops are one loop if each round of the outer loop begins where the inner loop would have
            // continued.
            Self::Strided { count: inner, stride: step, size, item }
                if inner.cast_signed().checked_mul(*step) == Some(stride) =>
            {
                Self::Strided { count: inner * count, stride: *step, size: *size, item: item.clone() }
            }
            _ => Self::Strided { count, stride, size, item: Arc::new(self.clone()) },
        }
    }

    /// Returns the form that has an item of the form `inner` in place of each unit of this node.
    pub(super) fn each_unit(&self, units: Units, inner: &Form) -> Result<Form, FormError> {
        match self {
            Self::Block(len) => inner.strided(units.count(*len), units.extent),
            Self::Strided { count, stride, item, .. } => {
                item.each_unit(units, inner)?.strided(*count, units.scale(*stride)?)
            }
            Self::Blocks(blocks) => {
                let items: Result<Vec<_>, _> = blocks
                    .iter()
                    .map(|block| {
                        let item = inner.strided(units.count(block.len), units.extent)?;
                        Ok((units.scale(block.at)?, item))
                    })
                    .collect();
                Form::list(items?.iter().map(|(at, item)| (*at, item)))
            }
            Self::Parts(parts) => {
                let items: Result<Vec<_>, _> = parts
                    .iter()
                    .map(|part| Ok((units.scale(part.at)?, part.node.each_unit(units, inner)?)))
                    .collect();
                Form::list(items?.iter().map(|(at, item)| (*at, item)))
            }
        }
    }

    /// Returns true if this is a block within nested loops, and if the distance of each loop is at least the span of
    /// the block and all loops with smaller distances. Then no byte occurs twice. This test is sufficient and fast, but
    /// not necessary.
    pub(super) fn is_mixed_radix(&self) -> bool {
        let mut loops = [(0, 0); 8];
        let (mut depth, mut node) = (0, self);
        let len = loop {
            match node {
                Self::Block(len) => break *len,
                Self::Strided { count, stride, item, .. } if depth < loops.len() => {
                    loops[depth] = (stride.unsigned_abs(), *count);
                    (depth, node) = (depth + 1, item);
                }
                _ => return false,
            }
        };
        let loops = &mut loops[..depth];
        loops.sort_unstable();
        let span = loops.iter().try_fold(len, |span, &(stride, count)| {
            (stride >= span).then(|| stride.checked_mul(count - 1)?.checked_add(span)).flatten()
        });
        span.is_some()
    }

    /// Returns true if no byte occurs twice. Compares all blocks. The caller guarantees that places relative to
    /// `origin` do not overflow.
    pub(super) fn is_disjoint(&self, origin: isize) -> bool {
        let mut blocks = Vec::new();
        self.blocks(origin, &mut blocks);
        blocks.sort_unstable();
        blocks.array_windows().all(|[(at, len), (next, _)]| next.abs_diff(*at) >= *len)
    }

    /// Appends the place and length of each block of this node to `into`. Offsets are added with wrapping, since the
    /// origin of an inner node may lie outside of the address space even if its bytes do not.
    fn blocks(&self, base: isize, into: &mut Vec<(isize, usize)>) {
        match self {
            Self::Block(len) => into.push((base, *len)),
            Self::Strided { count, stride, item, .. } => {
                let place = |index: usize| base.wrapping_add(stride.wrapping_mul(index.cast_signed()));
                (0..*count).for_each(|index| item.blocks(place(index), into));
            }
            Self::Blocks(blocks) => {
                into.extend(blocks.iter().map(|block| (base.wrapping_add(block.at), block.len)));
            }
            Self::Parts(parts) => {
                parts.iter().for_each(|part| part.node.blocks(base.wrapping_add(part.at), into));
            }
        }
    }

    /// Returns the place of the byte of this node at the offset `skip`, and the length of the rest of its block.
    /// Offsets are added with wrapping: see [`blocks`](Self::blocks).
    pub(super) fn run(&self, base: isize, skip: usize) -> (isize, usize) {
        match self {
            Self::Block(len) => (base.wrapping_add_unsigned(skip), len - skip),
            Self::Strided { stride, size, item, .. } => {
                let index = skip / size;
                item.run(base.wrapping_add(stride.wrapping_mul(index.cast_signed())), skip % size)
            }
            Self::Blocks(blocks) => {
                let index = blocks.partition_point(|block| block.before <= skip) - 1;
                let Block { at, len, before } = blocks[index];
                let within = skip - before;
                (base.wrapping_add(at).wrapping_add_unsigned(within), len - within)
            }
            Self::Parts(parts) => {
                let index = parts.partition_point(|part| part.before <= skip) - 1;
                let part = &parts[index];
                part.node.run(base.wrapping_add(part.at), skip - part.before)
            }
        }
    }

    /// Returns the length of the shortest block.
    pub(super) fn shortest_block(&self) -> usize {
        match self {
            Self::Block(len) => *len,
            Self::Strided { item, .. } => item.shortest_block(),
            Self::Blocks(blocks) => blocks.iter().map(|block| block.len).min().unwrap_or(0),
            Self::Parts(parts) => parts.iter().map(|part| part.node.shortest_block()).min().unwrap_or(0),
        }
    }

    /// Returns true if all places relative to the origin and all lengths are multiples of `unit`.
    pub(super) fn consists_of(&self, unit: usize) -> bool {
        match self {
            Self::Block(len) => len.is_multiple_of(unit),
            Self::Strided { stride, item, .. } => is_multiple(*stride, unit) && item.consists_of(unit),
            Self::Blocks(blocks) => {
                blocks.iter().all(|block| is_multiple(block.at, unit) && block.len.is_multiple_of(unit))
            }
            Self::Parts(parts) => {
                parts.iter().all(|part| is_multiple(part.at, unit) && part.node.consists_of(unit))
            }
        }
    }

    /// Copies bytes of the message from the offset `skip` on, until the copier has no more to copy. `base` is the place
    /// of the origin in the slice. Offsets are added with wrapping, since an origin may lie before the start of the
    /// slice.
    pub(super) fn copy<C: Copier>(&self, copier: &mut C, base: usize, skip: usize) {
        match self {
            Self::Block(len) => copier.block(base.wrapping_add(skip), len - skip),
            Self::Strided { count, stride, size, item } => {
                let mut first = skip / size;
                let within = skip - first * size;
                let place = |index: usize| base.wrapping_add(stride.cast_unsigned().wrapping_mul(index));
                if within > 0 || copier.left() < *size {
                    item.copy(copier, place(first), within);
                    first += 1;
                }
                let whole = (copier.left() / size).min(count - first.min(*count));
                if whole > 0 {
                    match **item {
                        Self::Block(len) => copier.blocks(place(first), len, *stride, whole),
                        _ => (first..first + whole).for_each(|index| item.copy_whole(copier, place(index))),
                    }
                }
                if copier.left() > 0 && first + whole < *count {
                    item.copy(copier, place(first + whole), 0);
                }
            }
            Self::Blocks(blocks) => {
                let first = blocks.partition_point(|block| block.before <= skip).saturating_sub(1);
                let mut within = skip - blocks[first].before;
                for block in &blocks[first..] {
                    if copier.left() == 0 {
                        break;
                    }
                    copier.block(base.wrapping_add_signed(block.at).wrapping_add(within), block.len - within);
                    within = 0;
                }
            }
            Self::Parts(parts) => {
                let first = parts.partition_point(|part| part.before <= skip).saturating_sub(1);
                let mut within = skip - parts[first].before;
                for part in &parts[first..] {
                    if copier.left() == 0 {
                        break;
                    }
                    part.node.copy(copier, base.wrapping_add_signed(part.at), within);
                    within = 0;
                }
            }
        }
    }

    /// Copies all bytes of this node. The copier has at least as many bytes left.
    #[inline]
    fn copy_whole<C: Copier>(&self, copier: &mut C, base: usize) {
        match self {
            Self::Block(len) => copier.block(base, *len),
            Self::Strided { count, stride, item, .. } => match **item {
                Self::Block(len) => copier.blocks(base, len, *stride, *count),
                _ => (0..*count).for_each(|index| {
                    item.copy_whole(copier, base.wrapping_add(stride.cast_unsigned().wrapping_mul(index)));
                }),
            },
            Self::Blocks(blocks) => {
                blocks.iter().for_each(|block| copier.block(base.wrapping_add_signed(block.at), block.len));
            }
            Self::Parts(parts) => {
                parts.iter().for_each(|part| part.node.copy_whole(copier, base.wrapping_add_signed(part.at)));
            }
        }
    }
}

/// The items of a list, from which a node is made.
#[derive(Default)]
pub(super) struct Parts {
    /// The items, if all of them are blocks. Otherwise empty, and the items are in `parts`.
    blocks: Vec<Block>,
    parts: Vec<Part>,
    size: usize,
}

impl Parts {
    pub(super) fn push(&mut self, at: isize, node: &Node, size: usize) {
        let before = self.size;
        self.size += size;
        match node {
            &Node::Block(len) if self.parts.is_empty() => self.push_block(Block { at, len, before }),
            Node::Blocks(blocks) if self.parts.is_empty() => {
                for block in blocks.iter() {
                    let at = at.wrapping_add(block.at);
                    self.push_block(Block { at, before: before + block.before, ..*block });
                }
            }
            _ => {
                let part =
                    |block: Block| Part { at: block.at, before: block.before, node: Node::Block(block.len) };
                self.parts.extend(self.blocks.drain(..).map(part));
                self.parts.push(Part { at, before, node: node.clone() });
            }
        }
    }

    fn push_block(&mut self, block: Block) {
        match self.blocks.last_mut() {
            Some(last) if last.at.checked_add_unsigned(last.len) == Some(block.at) => last.len += block.len,
            _ => self.blocks.push(block),
        }
    }

    /// Returns the node, and the place of its origin.
    pub(super) fn into_node(self) -> (isize, Node) {
        match (self.blocks.as_slice(), self.parts.as_slice()) {
            ([], []) => (0, Node::Block(0)),
            ([], [part]) => (part.at, part.node.clone()),
            ([], _) => (0, Node::Parts(self.parts.into())),
            ([first, rest @ ..], _) => match regular(first, rest) {
                Some(node) => (first.at, node),
                None => (0, Node::Blocks(self.blocks.into())),
            },
        }
    }
}

/// Returns the block or the loop that is equivalent to these blocks. Returns `None` if their lengths or their distances
/// differ, or if a block begins before its predecessor.
fn regular(first: &Block, rest: &[Block]) -> Option<Node> {
    let Some(second) = rest.first() else { return Some(Node::Block(first.len)) };
    let stride = second.at.checked_sub(first.at)?;
    let mut last = first.at;
    for block in rest {
        if block.len != first.len || block.at.checked_sub(last) != Some(stride) {
            return None;
        }
        last = block.at;
    }
    Some(Node::Block(first.len).strided(rest.len() + 1, stride, first.len))
}
