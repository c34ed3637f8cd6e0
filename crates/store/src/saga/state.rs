//! The states of sagas and steps.

kernel::words! {
    /// The state of a step.
    pub enum StepState {
        /// An attempt was made, and its result is unknown.
        Started = "started",
        Done = "done",
        /// The provider refused the step.
        Refused = "refused",
        /// The step was undone.
        Compensated = "compensated",
    } example Done
}

kernel::words! {
    /// The state of a saga.
    pub enum SagaState {
        /// A runner executes it, or died.
        Running = "running",
        /// The next attempt is scheduled.
        Waiting = "waiting",
        Done = "done",
        /// The saga was refused, and its steps are undone.
        Failed = "failed",
        /// An operator ended the saga, and its steps are undone.
        Abandoned = "abandoned",
    } example Running
}
