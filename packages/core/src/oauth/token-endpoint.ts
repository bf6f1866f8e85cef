/**
 * One request to an authorization server's token endpoint (RFC 6749), through the guarded door and
 * without redirects. Servers differ, so what they answer is read leniently; what is wrong is told in
 * the words of `token-errors.ts`.
 */
import { isHeaderValue } from "../blind/header-rules.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import { isJsonObject, parseJson, type JsonObject } from "../json.ts";
import type { Egress, EgressResponse } from "../ports/egress.ts";
import { Redactor } from "../secrets/redactor.ts";
import { isWebAddress, type OAuthClient } from "./client.ts";
import { notAnAddress, toAnswerError, toConnectionError } from "./token-errors.ts";
import { readAtMost } from "../read-body.ts";

/** How the client proved itself; remembered with the token. */
export type ClientAuth = "basic" | "post" | "none";

export interface TokenReply {
  readonly accessToken: string;
  readonly refreshToken: string | undefined;
  /** Seconds as the server says; undefined: it does not. */
  readonly expiresIn: number | undefined;
  /** Undefined: as asked for. */
  readonly scope: string | undefined;
  readonly clientAuth: ClientAuth;
}

export type TokenForm =
  | { readonly grant_type: "client_credentials" }
  | { readonly grant_type: "refresh_token"; readonly refresh_token: string }
  | {
      readonly grant_type: "authorization_code";
      readonly code: string;
      readonly redirect_uri: string;
      readonly code_verifier: string;
    };

export interface TokenRequest {
  readonly form: TokenForm;
  /** What has worked before for this client. */
  readonly clientAuth: ClientAuth | undefined;
}

/** Longest wait for the endpoint; calls that wait for the token have limits of their own. */
const requestTimeoutMs = 30_000;
const revocationTimeoutMs = 10_000;
const largestReply = 262_144;
/** Slack names types by whose access it is, and wants its tokens as bearer tokens. */
const bearerTypes: ReadonlySet<string> = new Set(["bearer", "bot", "user"]);
/** Shorter values are ordinary words, which must not be cut out of texts. */
const shortestId = 8;

/**
 * @throws GatewayError `credential_invalid` naming the setting at fault; `tool_failed` where the server
 * is at fault; the egress's errors
 */
export async function requestToken(egress: Egress, client: OAuthClient, request: TokenRequest): Promise<TokenReply> {
  const first = clientAuthOf(client, request.clientAuth);
  try {
    return await send(egress, client, { form: request.form, clientAuth: first });
  } catch (error) {
    const other = first === "basic" ? "post" : "basic";
    if (first === "none" || client.clientAuth !== undefined || !mayMissProof(error)) throw error;
    return await send(egress, client, { form: request.form, clientAuth: other }).catch((second: unknown) => {
      const said = oauthErrorOf(second);
      if (said === "invalid_client" && oauthErrorOf(error) !== said) throw second;
      // A code may be spent with the first try; what is said of it then explains nothing.
      const isSpent = request.form.grant_type === "authorization_code" && said !== undefined;
      throw isSpent || mayMissProof(second) ? error : second;
    });
  }
}

/** Said of a refresh token that is over: by RFC 6749, GitHub and Slack. */
export const accessEnded: ReadonlySet<string | undefined> = new Set([
  "invalid_grant",
  "bad_refresh_token",
  "invalid_refresh_token",
]);

/** Said to a client that is known. */
const saidToKnown: ReadonlySet<string | undefined> = new Set([
  ...accessEnded,
  "invalid_scope",
  "invalid_target",
  "unauthorized_client",
  "unsupported_grant_type",
]);

/** Servers that look for the proof elsewhere say anything: that they do not know the client, or miss a parameter. */
function mayMissProof(error: unknown): boolean {
  const isAnswer = error instanceof GatewayError && error.code === "credential_invalid";
  return isAnswer && !saidToKnown.has(oauthErrorOf(error));
}

/** The `error` of RFC 6749 that the server answered with. */
export function oauthErrorOf(error: unknown): string | undefined {
  const code = error instanceof GatewayError ? error.details.extra?.["oauth_error"] : undefined;
  return typeof code === "string" ? code : undefined;
}

function clientAuthOf(client: OAuthClient, remembered: ClientAuth | undefined): ClientAuth {
  if (client.clientSecret === undefined) return "none";
  const known = remembered === "none" ? undefined : remembered;
  return client.clientAuth ?? known ?? "basic";
}

interface Sending {
  readonly form: TokenForm;
  readonly clientAuth: ClientAuth;
}

async function send(egress: Egress, client: OAuthClient, { form, clientAuth }: Sending): Promise<TokenReply> {
  const { response, text, redact } = await post(egress, client, {
    url: client.tokenUrl,
    target: "token_url",
    fields: { ...form, ...requested(client, form) },
    clientAuth,
    timeoutMs: requestTimeoutMs,
  });
  const fields = parseReply(text);
  const accessToken = textOf(fields["access_token"]);
  const isOk = response.status >= 200 && response.status <= 299;
  const type = textOf(fields["token_type"])?.toLowerCase() ?? "bearer";
  if (!isOk || accessToken === undefined || !bearerTypes.has(type) || !isHeaderValue(accessToken)) {
    throw toAnswerError(client, { response, fields, redact, grant: form.grant_type });
  }
  return {
    accessToken,
    refreshToken: textOf(fields["refresh_token"]),
    expiresIn: secondsOf(fields["expires_in"]),
    scope: textOf(fields["scope"]),
    clientAuth,
  };
}

/** What is asked for; a code already stands for a scope. */
function requested(client: OAuthClient, form: TokenForm): Readonly<Record<string, string>> {
  return {
    ...(client.scope === undefined || form.grant_type !== "client_credentials" ? {} : { scope: client.scope }),
    ...(client.audience === undefined ? {} : { audience: client.audience }),
    ...(client.resource === undefined ? {} : { resource: client.resource }),
  };
}

/**
 * Asks the server to forget a token (RFC 7009). @throws GatewayError as the door does, `tool_failed`
 * where the server does not want to
 */
export async function revokeToken(
  egress: Egress,
  client: OAuthClient,
  token: { readonly value: string; readonly hint: "access_token" | "refresh_token"; readonly clientAuth: ClientAuth },
): Promise<void> {
  if (client.revocationUrl === undefined) return;
  const { response } = await post(egress, client, {
    url: client.revocationUrl,
    target: "revocation_url",
    fields: { token: token.value, token_type_hint: token.hint },
    clientAuth: clientAuthOf(client, token.clientAuth),
    timeoutMs: revocationTimeoutMs,
  });
  if (response.status < 200 || response.status > 299) {
    throw new GatewayError(
      "tool_failed",
      `The authorization server answered a revocation with status ${response.status}.`,
      {
        extra: { status: response.status },
      },
    );
  }
}

interface Posting {
  readonly url: string;
  readonly target: "token_url" | "revocation_url";
  readonly fields: Readonly<Record<string, string>>;
  readonly clientAuth: ClientAuth;
  readonly timeoutMs: number;
}

interface Posted {
  readonly response: EgressResponse;
  readonly text: string;
  /** Takes everything secret out of what the server says. */
  readonly redact: (text: string) => string;
}

async function post(egress: Egress, client: OAuthClient, posting: Posting): Promise<Posted> {
  const { url, target, clientAuth } = posting;
  if (!isWebAddress(url)) throw notAnAddress(client, target);
  const redactor = new Redactor();
  const authorization = clientAuth === "basic" ? basicAuthorization(client) : undefined;
  const secrets = [client.clientSecret, authorization?.slice("Basic ".length), ...secretFields(posting.fields)];
  for (const secret of secrets) redactor.add(secret ?? "");
  if (client.clientId.length >= shortestId) redactor.add(client.clientId);
  const body = new URLSearchParams({ ...posting.fields, ...clientFields(client, clientAuth) });
  try {
    const response = await egress.request({
      method: "POST",
      url,
      headers: [
        ["accept", "application/json"],
        ["content-type", "application/x-www-form-urlencoded"],
        ["user-agent", "toolyard"],
        ...(authorization === undefined ? [] : [["authorization", authorization] as const]),
      ],
      body: body.toString(),
      timeoutMs: posting.timeoutMs,
      // The address may be a secret, or where one was put by mistake.
      peer: "authorization server",
    });
    // Too much for any token; the beginning is enough to say what came instead.
    const { bytes } = await readAtMost(response.body, largestReply);
    return { response, text: Buffer.from(bytes).toString("utf8"), redact: (said) => redactor.redact(said) };
  } catch (error) {
    throw toConnectionError(client, target, error);
  }
}

function secretFields(fields: Readonly<Record<string, string>>): readonly (string | undefined)[] {
  return [fields["refresh_token"], fields["code"], fields["code_verifier"], fields["token"]];
}

function clientFields(client: OAuthClient, clientAuth: ClientAuth): Readonly<Record<string, string>> {
  if (clientAuth === "basic") return {};
  return {
    client_id: client.clientId,
    ...(clientAuth === "post" ? { client_secret: client.clientSecret ?? "" } : {}),
  };
}

/** Both halves are form-encoded before they are joined (RFC 6749, 2.3.1), so that a colon in one is no border. */
export function basicAuthorization({ clientId, clientSecret = "" }: OAuthClient): string {
  const pair = `${formEncode(clientId)}:${formEncode(clientSecret)}`;
  return `Basic ${Buffer.from(pair, "utf8").toString("base64")}`;
}

function formEncode(text: string): string {
  return new URLSearchParams([["", text]]).toString().slice(1);
}

/** JSON whatever its type is called; some servers still answer with a form. */
function parseReply(text: string): JsonObject {
  const json = parseJson(text);
  if (isJsonObject(json)) return json;
  if (/^[\w.~%+*-]+=/.test(text) && !text.includes("\n")) return Object.fromEntries(new URLSearchParams(text));
  return {};
}

function textOf(value: unknown): string | undefined {
  return typeof value === "string" && value !== "" ? value : undefined;
}

/** Some servers send text. */
function secondsOf(value: unknown): number | undefined {
  const seconds = typeof value === "string" && value.trim() !== "" ? Number(value) : value;
  return typeof seconds === "number" && !Number.isNaN(seconds) ? seconds : undefined;
}
