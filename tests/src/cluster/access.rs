//! How to reach the API server: the administrator's token, a kubeconfig and a `kubectl` that knows both.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use rcgen::{KeyPair, PKCS_ECDSA_P256_SHA256};
use serde_json::json;

use super::network::CONTROL_ADDRESS;

/// The API server's port.
pub(super) const PORT: u16 = 6443;

/// Keys and tokens of one control plane, in one folder.
#[derive(Debug)]
pub(super) struct Credentials {
    pub(super) dir: PathBuf,
    token: String,
}

impl Credentials {
    /// Makes the administrator's token and the keys that sign service accounts' tokens.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub(super) fn create(dir: PathBuf) -> Result<Self> {
        fs::create_dir_all(&dir).with_context(|| format!("make {}", dir.display()))?;
        let signing =
            KeyPair::generate_for(&PKCS_ECDSA_P256_SHA256).context("make a key for service accounts")?;
        let credentials = Self { dir, token: random_token()? };
        credentials.write("sa.key", &signing.serialize_pem())?;
        credentials.write("sa.pub", &signing.public_key_pem())?;
        credentials
            .write("tokens.csv", &format!("{},admin,admin,\"system:masters\"\n", credentials.token))?;
        Ok(credentials)
    }

    /// Writes the administrator's kubeconfig, once the API server has made its certificate.
    ///
    /// # Errors
    /// When there is no certificate yet.
    pub(super) fn kubeconfig(&self) -> Result<PathBuf> {
        let authority = self.dir.join("apiserver.crt");
        fs::metadata(&authority).with_context(|| format!("find {}", authority.display()))?;
        let config = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "bench",
            "clusters": [{"name": "bench", "cluster": {
                "server": format!("https://{CONTROL_ADDRESS}:{PORT}"),
                "certificate-authority": authority,
            }}],
            "users": [{"name": "admin", "user": {"token": self.token}}],
            "contexts": [{"name": "bench", "context": {"cluster": "bench", "user": "admin"}}],
        });
        // JSON is YAML.
        self.write("kubeconfig", &format!("{config:#}\n"))
    }

    fn write(&self, name: &str, text: &str) -> Result<PathBuf> {
        let path = self.dir.join(name);
        fs::write(&path, text).with_context(|| format!("write {}", path.display()))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
        Ok(path)
    }
}

fn random_token() -> Result<String> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")
        .and_then(|mut random| random.read_exact(&mut bytes))
        .context("make a token")?;
    Ok(format!("{:032x}", u128::from_ne_bytes(bytes)))
}

/// A client that reads the kubeconfig; for a thread in a namespace that reaches the API server.
///
/// # Errors
/// When the file is no kubeconfig.
pub(super) async fn client(kubeconfig: &Path) -> Result<Client> {
    let file = Kubeconfig::read_from(kubeconfig).context("read the kubeconfig")?;
    let config = Config::from_custom_kubeconfig(file, &KubeConfigOptions::default())
        .await
        .context("use the kubeconfig")?;
    Client::try_from(config).context("make a client of the API server")
}

/// Writes a script that runs `kubectl` in a namespace that reaches the API server, whoever calls it from wherever.
///
/// # Errors
/// When the file cannot be written.
pub(super) fn kubectl_script(path: &Path, kubectl: &Path, kubeconfig: &Path, netns: &str) -> io::Result<()> {
    let script = format!(
        "#!/bin/sh\nexec nsenter --net=/run/netns/{netns} '{}' --kubeconfig='{}' \"$@\"\n",
        kubectl.display(),
        kubeconfig.display()
    );
    fs::write(path, script)?;
    fs::set_permissions(path, fs::Permissions::from_mode(0o755))
}
