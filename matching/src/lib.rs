//! Message matching by (context, source, tag): flat at any depth, usable alone.
