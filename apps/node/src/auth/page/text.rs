//! The texts of the pages.

use protocol::AuthProviderKind;

use super::Language;

/// The texts in one language. `{name}` stands for the name of a provider or of the site.
pub struct Texts {
    /// The names of the providers, in the form that [`Self::continue_with`] and the other texts need.
    names: [&'static str; 3],
    pub sign_in_to: &'static str,
    pub choose: &'static str,
    pub continue_with: &'static str,
    pub try_again: &'static str,
    pub to_site: &'static str,
    pub not_ready: Message,
    pub unknown_provider: Message,
    pub withdrawn: Message,
    pub denied: Message,
    pub expired: Message,
    pub provider_failed: Message,
    pub too_many: Message,
    pub unavailable: Message,
    pub cross_origin: Message,
    pub not_found: Message,
    pub wrong_request: Message,
}

/// The title of a page, and the text that says what to do.
pub struct Message(pub &'static str, pub &'static str);

impl Texts {
    /// Returns the texts in a language.
    pub const fn of(language: Language) -> &'static Self {
        match language {
            Language::English => &ENGLISH,
            Language::German => &GERMAN,
            Language::French => &FRENCH,
            Language::Japanese => &JAPANESE,
        }
    }

    /// Returns the general name of a provider.
    pub const fn name(&self, provider: AuthProviderKind) -> &'static str {
        let [code_host, web_account, messenger] = self.names;
        match provider {
            AuthProviderKind::Codehost => code_host,
            AuthProviderKind::Webaccount => web_account,
            AuthProviderKind::Messenger => messenger,
        }
    }
}

static ENGLISH: Texts = Texts {
    names: ["your code host", "your web account", "your messenger"],
    sign_in_to: "Sign in to {name}",
    choose: "Choose how you want to sign in.",
    continue_with: "Continue with {name}",
    try_again: "Try again",
    to_site: "Go to the site",
    not_ready: Message(
        "Sign-in is not available yet",
        "The owner of this site has not set up a way to sign in. Try again later.",
    ),
    unknown_provider: Message("Unknown way to sign in", "Choose another way to sign in."),
    withdrawn: Message(
        "This way to sign in is no longer available",
        "The owner of this site has changed the ways to sign in. Choose one of the current ways.",
    ),
    denied: Message("You are not signed in", "You canceled the sign-in with {name}. You can try again at any time."),
    expired: Message(
        "This sign-in has expired",
        "It was already completed, took longer than ten minutes, or began in another browser. Start again.",
    ),
    provider_failed: Message(
        "You could not be signed in",
        "The sign-in with {name} failed. Try again in a few minutes. If it fails again, contact the owner of this site.",
    ),
    too_many: Message("Too many attempts", "Wait a minute, then try again."),
    unavailable: Message(
        "Sign-in is unavailable at the moment",
        "Try again in a minute. You do not need to do anything else.",
    ),
    cross_origin: Message(
        "This request came from another site",
        "To sign out, use the button on the pages of this site.",
    ),
    not_found: Message("There is no page at this address", "Check the address, or go to the site."),
    wrong_request: Message("This address does not accept this request", "Go to the site and try again from there."),
};

static GERMAN: Texts = Texts {
    names: ["Ihrem Code-Host", "Ihrem Webkonto", "Ihrem Messenger"],
    sign_in_to: "Bei {name} anmelden",
    choose: "Wählen Sie, wie Sie sich anmelden möchten.",
    continue_with: "Weiter mit {name}",
    try_again: "Erneut versuchen",
    to_site: "Zur Website",
    not_ready: Message(
        "Die Anmeldung ist noch nicht verfügbar",
        "Der Betreiber dieser Website hat noch keine Anmeldung eingerichtet. Versuchen Sie es später erneut.",
    ),
    unknown_provider: Message("Unbekannte Anmeldung", "Wählen Sie eine andere Anmeldung."),
    withdrawn: Message(
        "Diese Anmeldung ist nicht mehr verfügbar",
        "Der Betreiber dieser Website hat die Anmeldung geändert. Wählen Sie eine der aktuellen Möglichkeiten.",
    ),
    denied: Message(
        "Sie sind nicht angemeldet",
        "Sie haben die Anmeldung mit {name} abgebrochen. Sie können es jederzeit erneut versuchen.",
    ),
    expired: Message(
        "Diese Anmeldung ist abgelaufen",
        "Sie wurde bereits abgeschlossen, hat länger als zehn Minuten gedauert oder wurde in einem anderen Browser \
         begonnen. Beginnen Sie von vorn.",
    ),
    provider_failed: Message(
        "Sie konnten nicht angemeldet werden",
        "Die Anmeldung mit {name} ist fehlgeschlagen. Versuchen Sie es in einigen Minuten erneut. Wenn sie wieder \
         fehlschlägt, wenden Sie sich an den Betreiber dieser Website.",
    ),
    too_many: Message("Zu viele Versuche", "Warten Sie eine Minute und versuchen Sie es dann erneut."),
    unavailable: Message(
        "Die Anmeldung ist im Moment nicht verfügbar",
        "Versuchen Sie es in einer Minute erneut. Sonst müssen Sie nichts tun.",
    ),
    cross_origin: Message(
        "Diese Anfrage kam von einer anderen Website",
        "Melden Sie sich auf den Seiten dieser Website ab.",
    ),
    not_found: Message(
        "Unter dieser Adresse gibt es keine Seite",
        "Prüfen Sie die Adresse oder gehen Sie zur Website.",
    ),
    wrong_request: Message(
        "Diese Adresse nimmt diese Anfrage nicht an",
        "Gehen Sie zur Website und versuchen Sie es dort erneut.",
    ),
};

static FRENCH: Texts = Texts {
    names: ["votre hébergeur de code", "votre compte web", "votre messagerie"],
    sign_in_to: "Se connecter à {name}",
    choose: "Choisissez comment vous connecter.",
    continue_with: "Continuer avec {name}",
    try_again: "Réessayer",
    to_site: "Aller au site",
    not_ready: Message(
        "La connexion n’est pas encore disponible",
        "Le propriétaire de ce site n’a pas encore configuré de moyen de connexion. Réessayez plus tard.",
    ),
    unknown_provider: Message("Moyen de connexion inconnu", "Choisissez un autre moyen de connexion."),
    withdrawn: Message(
        "Ce moyen de connexion n’est plus disponible",
        "Le propriétaire de ce site a modifié les moyens de connexion. Choisissez l’un des moyens actuels.",
    ),
    denied: Message(
        "Vous n’êtes pas connecté",
        "Vous avez annulé la connexion avec {name}. Vous pouvez réessayer à tout moment.",
    ),
    expired: Message(
        "Cette connexion a expiré",
        "Elle est déjà terminée, a duré plus de dix minutes ou a commencé dans un autre navigateur. \
         Recommencez.",
    ),
    provider_failed: Message(
        "La connexion a échoué",
        "La connexion avec {name} a échoué. Réessayez dans quelques minutes. Si elle échoue encore, \
         contactez le propriétaire de ce site.",
    ),
    too_many: Message("Trop de tentatives", "Attendez une minute, puis réessayez."),
    unavailable: Message(
        "La connexion est indisponible pour le moment",
        "Réessayez dans une minute. Vous n’avez rien d’autre à faire.",
    ),
    cross_origin: Message(
        "Cette demande vient d’un autre site",
        "Pour vous déconnecter, utilisez le bouton sur les pages de ce site.",
    ),
    not_found: Message("Il n’y a pas de page à cette adresse", "Vérifiez l’adresse ou allez au site."),
    wrong_request: Message("Cette adresse n’accepte pas cette demande", "Allez au site et réessayez depuis ses pages."),
};

static JAPANESE: Texts = Texts {
    names: ["コードホスト", "ウェブアカウント", "メッセンジャー"],
    sign_in_to: "{name} にログイン",
    choose: "ログイン方法を選択してください。",
    continue_with: "{name}で続ける",
    try_again: "もう一度試す",
    to_site: "サイトへ移動",
    not_ready: Message(
        "ログインはまだ利用できません",
        "このサイトの運営者がログイン方法を設定していません。後でもう一度お試しください。",
    ),
    unknown_provider: Message("不明なログイン方法です", "別のログイン方法を選択してください。"),
    withdrawn: Message(
        "このログイン方法は利用できなくなりました",
        "このサイトの運営者がログイン方法を変更しました。現在の方法から選択してください。",
    ),
    denied: Message("ログインしていません", "{name}でのログインがキャンセルされました。いつでもやり直せます。"),
    expired: Message(
        "このログインは期限切れです",
        "すでに完了したか、10分以上かかったか、別のブラウザーで開始されました。最初からやり直してください。",
    ),
    provider_failed: Message(
        "ログインできませんでした",
        "{name}でのログインに失敗しました。数分後にもう一度お試しください。再び失敗する場合は、このサイトの運営者にお問い合わせください。",
    ),
    too_many: Message("試行回数が多すぎます", "1分待ってから、もう一度お試しください。"),
    unavailable: Message("現在ログインを利用できません", "1分後にもう一度お試しください。ほかの操作は必要ありません。"),
    cross_origin: Message(
        "別のサイトからのリクエストです",
        "ログアウトするには、このサイトのページのボタンを使用してください。",
    ),
    not_found: Message("このアドレスにページはありません", "アドレスを確認するか、サイトへ移動してください。"),
    wrong_request: Message(
        "このアドレスはこのリクエストを受け付けません",
        "サイトへ移動して、そこからやり直してください。",
    ),
};
