/**
 * Why there is no access token, in words that name the tenant's setting and say what to do, never an
 * address. What the server said is quoted only after everything secret was taken out of it, and cut.
 */
import { GatewayError } from "../errors/gateway-error.ts";
import { parseRetryAfter } from "../blind/reply.ts";
import type { JsonObject } from "../json.ts";
import type { EgressResponse } from "../ports/egress.ts";
import { credentialOf, settingOf, type OAuthClient, type OAuthTarget } from "./client.ts";

/** Characters of the server's own words. */
const longestQuote = 300;

export interface TokenAnswer {
  readonly response: Pick<EgressResponse, "status" | "headers">;
  /** What could be read of the body; empty where it was something else, a page for example. */
  readonly fields: JsonObject;
  readonly redact: (text: string) => string;
  readonly grant: string;
}

/** The server answered, but with no token. */
export function toAnswerError(client: OAuthClient, answer: TokenAnswer): GatewayError {
  const { fields, response } = answer;
  const code = fields["error"];
  if (typeof code === "string" && /^[\x20-\x7e]{1,64}$/.test(code)) return toRefusal(client, answer, code);
  if (isBusy(answer)) {
    return failedServer(client, answer, `answered with status ${response.status}`);
  }
  const isOk = response.status >= 200 && response.status <= 299;
  if (isOk && typeof fields["access_token"] === "string" && fields["access_token"] !== "") {
    return failedServer(client, answer, "gave a token that cannot be sent as a bearer token");
  }
  // RFC 6749, 5.2: the status of a client that is not known, said without words.
  if (response.status === 401) return unknownClient(client, answer.grant);
  const type = contentTypeOf(response);
  const what = `status ${response.status}${type === "" ? "" : ` and ${type}`}`;
  return invalid(
    client,
    "token_url",
    `The authorization server answered a token request with ${what} instead of a token; ${check(client, "token_url")}.`,
  );
}

function isBusy({ response: { status } }: TokenAnswer): boolean {
  return status === 429 || status >= 500;
}

interface Advice {
  /** Setting that is most likely at fault. */
  readonly target: OAuthTarget;
  readonly text: (client: OAuthClient, grant: string) => string;
}

const clientAdvice: Advice = {
  target: "client_secret",
  text: (client) =>
    client.clientSecret === undefined
      ? `${check(client, "client_id")}, or map a 'client_secret' if the server wants one`
      : `${check(client, "client_id")} and ${settingOf(client, "client_secret")}, and 'auth_config.client_auth' if it is set`,
};

const advice: Readonly<Record<string, Advice>> = {
  invalid_client: clientAdvice,
  unauthorized_client: {
    target: "client_id",
    text: (client, grant) => `allow the client of ${settingOf(client, "client_id")} the grant '${grant}' at the server`,
  },
  unsupported_grant_type: {
    target: "token_url",
    text: (client, grant) => `the server does not know the grant '${grant}'; ${check(client, "token_url")}`,
  },
  invalid_scope: {
    target: "scope",
    text: (client) =>
      client.scope === undefined
        ? "map a credential to the target 'scope' with what the server allows"
        : check(client, "scope"),
  },
  invalid_target: {
    target: "token_url",
    text: () => "check 'auth_config.resource' and 'auth_config.audience' of the tool's definition",
  },
  invalid_grant: {
    target: "client_id",
    text: (client, grant) =>
      grant === "client_credentials"
        ? `${check(client, "client_id")} and ${settingOf(client, "client_secret")}`
        : "it has expired, was used before or was withdrawn; give the access anew",
  },
};

function unknownClient(client: OAuthClient, grant: string): GatewayError {
  const { target, text } = clientAdvice;
  return invalid(
    client,
    target,
    `The authorization server gave no access token and no reason (status 401); ${text(client, grant)}, and that ${settingOf(client, "token_url")} is its token endpoint.`,
    { oauth_error: "invalid_client" },
  );
}

const serverFaults = new Set(["server_error", "temporarily_unavailable", "slow_down"]);

function toRefusal(client: OAuthClient, answer: TokenAnswer, code: string): GatewayError {
  const { fields, redact, grant } = answer;
  const description = fields["error_description"];
  const said = typeof description === "string" ? ` ("${quote(redact(description))}")` : "";
  const known = Object.hasOwn(advice, code) ? advice[code] : undefined;
  // Servers that limit or fail say so in words of their own, too ('too_many_requests').
  if (serverFaults.has(code) || (known === undefined && isBusy(answer))) {
    return failedServer(client, answer, `answered '${redact(code)}'${said}`);
  }
  const text = known?.text(client, grant) ?? `${check(client, "token_url")} and the client's settings at the server`;
  return invalid(
    client,
    known?.target ?? "token_url",
    `The authorization server gave no access token: '${redact(code)}'${said}; ${text}.`,
    { oauth_error: code },
  );
}

function failedServer(client: OAuthClient, { response }: TokenAnswer, what: string): GatewayError {
  const header = response.headers["retry-after"];
  const retryAfterMs = parseRetryAfter(typeof header === "string" ? header : undefined);
  return new GatewayError(
    "tool_failed",
    `The authorization server behind ${settingOf(client, "token_url")} ${what}; nothing was sent to the tool itself.`,
    {
      ...paramOf(client, "token_url"),
      extra: { status: response.status },
      ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
    },
  );
}

/** @param error what the door threw; the address in it is hidden already */
export function toConnectionError(client: OAuthClient, target: OAuthTarget, error: unknown): unknown {
  if (!(error instanceof GatewayError)) return error;
  return new GatewayError(
    error.code,
    `No access token, nothing was sent to the tool itself: ${error.message} That address is ${settingOf(client, target)}.`,
    { ...error.details, ...paramOf(client, target) },
  );
}

/** Not shown: what stands there by mistake may be a secret. */
export function notAnAddress(client: OAuthClient, target: OAuthTarget): GatewayError {
  return invalid(
    client,
    target,
    `${capitalise(settingOf(client, target))} must be an http or https URL without user name, password and fragment; ${howToSet(client, target)}.`,
  );
}

/** The endpoint is slower than those who wait for it. */
export function toTooSlow(client: OAuthClient): GatewayError {
  return new GatewayError(
    "tool_timeout",
    `The authorization server behind ${settingOf(client, "token_url")} gave no access token within the time of this call, nothing was sent to the tool itself; raise 'timeout' in the URI, what the tool's definition or its service says ('timeout_ms'), or the tenant's 'tool_timeout_ms'.`,
    paramOf(client, "token_url"),
  );
}

function invalid(
  client: OAuthClient,
  target: OAuthTarget,
  message: string,
  extra?: Readonly<Record<string, string>>,
): GatewayError {
  return new GatewayError("credential_invalid", message, {
    ...paramOf(client, target),
    ...(extra === undefined ? {} : { extra }),
  });
}

function paramOf(client: OAuthClient, target: OAuthTarget): { readonly param: string } {
  return { param: client.sources[target] ?? `auth_config.${target}` };
}

function check(client: OAuthClient, target: OAuthTarget): string {
  return `check ${settingOf(client, target)}${credentialOf(client, target) === undefined ? "" : `, set with ${put(client, target)}`}`;
}

function howToSet(client: OAuthClient, target: OAuthTarget): string {
  return credentialOf(client, target) === undefined
    ? "change the tool's definition"
    : `set it again with ${put(client, target)}`;
}

function put(client: OAuthClient, target: OAuthTarget): string {
  return `PUT /v1/credentials/${encodeURIComponent(credentialOf(client, target) ?? "")}`;
}

function contentTypeOf({ headers }: Pick<EgressResponse, "headers">): string {
  const type = headers["content-type"];
  const essence = typeof type === "string" ? (type.split(";", 1)[0] ?? "") : "";
  return /^[\w.+-]+\/[\w.+-]+$/.test(essence) ? essence : "";
}

function quote(text: string): string {
  const line = text.replace(/[\s\p{Cc}]+/gu, " ").trim();
  return line.length > longestQuote ? `${line.slice(0, longestQuote)}…` : line;
}

function capitalise(text: string): string {
  return text.charAt(0).toUpperCase() + text.slice(1);
}
