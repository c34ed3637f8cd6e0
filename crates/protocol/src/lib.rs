//! The wire types between the control plane and its nodes: desired state, reports, and the access round trip. Also
//! contains the parsers of cookies and of `Basic` credentials, which both sides use.
//!
//! The control plane and all nodes use these types, so both sides agree on the format. The crate depends on only one
//! other crate of the workspace, `sha256`. Therefore ids are strings here, which the control plane parses.
//!
//! A context that needs desired state at nodes adds a [`DesiredPart`]. A new kind of observed state is a
//! [`ReportKind`]. `docs/convergence.md` describes the protocol.

mod ai;
mod auth;
mod backups;
mod basic;
mod bounded;
mod certificates;
mod cookie;
mod database;
mod desired;
mod git;
mod mail;
mod report;
mod secrets;
mod site;
mod storage;
mod visitor;

pub use ai::{
    AdmittedCall, Ai, AiAdmission, AiCallRequest, AiSettlements, AiUsage, EndedCall, OpenCall, RefusalCode, RefusedCall,
};
pub use auth::{Auth, AuthBrand, AuthProvider, AuthProviderKind};
pub use backups::{DeletedBackups, DeletedBackupsReport};
pub use basic::basic_password;
pub use certificates::{Certificate, CertificateReference, Certificates, ChallengeResponse};
pub use cookie::cookie_values;
pub use database::{
    CompletedPhase, Database, DatabaseLogin, DatabaseOperation, DatabaseOperationKind, DatabaseReport, DatabaseServer,
    ExportReport, FailedExport, FailedOperation, GenerationKind, GenerationRef, GenerationReport, NodeInfo,
    OperationPhase, OperationReport, SslMode, StoredExport, Verifier,
};
pub use desired::{Change, Desired, DesiredPart, Platform, SCHEMA, UnavailablePart};
pub use git::{
    GitAccess, GitAccessRequest, GitDeploy, GitDeployState, GitDeployed, GitGrant, GitKey, GitKeyUser, GitNextDeploy,
    GitNodeInfo, GitObjects, GitPushDecision, GitPusher, GitReceipt, GitRejection, GitRepositories, GitSize, GitUpdate,
    GitUpdates,
};
pub use mail::{
    DeliveryOutcome, DeliveryResult, Email, InboundMail, MailAttachment, MailClaim, MailDelivered, MailDeliveries,
    MailDelivery, MailRefusal, MailSubmission, MailSubmitted, OutgoingMail, Recipient, RecipientRequest, RefusedMail,
};
pub use report::{Batch, DeploymentReport, DeploymentState, Receipt, Report, ReportKind};
pub use secrets::{SecretValue, Secrets};
pub use sha256::{Digest, Digester, InvalidDigest};
pub use site::{AccessMode, Site, SiteAccess, SiteHsts};
pub use storage::{DeletedStorage, DeletedStorageReport, Storage, StorageReport};
pub use visitor::{RedeemRequest, RedeemResult};
