/** How a message service's broker is reached and logged in to, with its secrets open. */
import type { CredentialResolver } from "../blind/credential-resolver.ts";
import type { CallContext } from "../context.ts";
import type { BrokerAccount, BrokerLogin } from "../ports/message-broker.ts";
import { openSecret } from "../services/open-secret.ts";
import { openTls } from "../services/tls.ts";
import { serversOf, type MqConfig } from "./config.ts";

/** @throws GatewayError `credential_missing`, `credential_unreadable` naming the credential; `not_sent` */
export async function accountOf(
  config: MqConfig,
  context: CallContext,
  credentials: CredentialResolver,
): Promise<BrokerAccount> {
  const { broker } = config;
  return {
    kind: broker,
    servers: serversOf(config),
    tls: config.security === "none" ? undefined : ((await openTls(config.tls, credentials, context)) ?? {}),
    login: await loginOf(config, context, credentials),
    virtualHost: config.virtual_host ?? "/",
    mechanism: config.mechanism ?? "plain",
    namespace: config.namespace,
  };
}

async function loginOf(
  { username, password: reference }: MqConfig,
  context: CallContext,
  credentials: CredentialResolver,
): Promise<BrokerLogin | undefined> {
  if (reference === undefined) return undefined;
  const password = await openSecret(reference, credentials, context);
  context.redactor.add(password);
  return { username, password, credential: reference.credential };
}
