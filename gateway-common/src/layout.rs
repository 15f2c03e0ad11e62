//! The one macro through which every map type goes.

/// Asserts a map type's size and the offset of each named field at compile time, and makes it usable as an aya
/// key or value in user space.
///
/// Padding is refused by `zerocopy::IntoBytes`, which the type must derive; a moved field by the offsets here.
macro_rules! map_type {
    ($type:ty, size = $size:literal, offsets = { $($field:ident: $offset:literal),+ $(,)? }) => {
        const _: () = {
            assert!(core::mem::size_of::<$type>() == $size);
            $(assert!(core::mem::offset_of!($type, $field) == $offset);)+
            const fn has_no_padding<T: zerocopy::IntoBytes + zerocopy::FromBytes + Copy>() {}
            has_no_padding::<$type>();
        };

        // SAFETY: `IntoBytes` and `FromBytes`, checked above, say that any bytes are a value and that none is padding.
        #[cfg(feature = "user")]
        unsafe impl aya::Pod for $type {}
    };
}

pub(crate) use map_type;
