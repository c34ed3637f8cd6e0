//! Policies that authenticate their caller.

/// Implements [`crate::http::Policy`] for types with a field `actor`.
macro_rules! impl_caller_policies {
    ($([$($generics:tt)*] $policy:ty;)+) => { $(
        impl<$($generics)*> crate::http::Policy for $policy {
            fn actor(&mut self) -> Option<&mut kernel::audit::Actor> {
                Some(&mut self.actor)
            }
        }
    )+ };
}
pub(crate) use impl_caller_policies;
