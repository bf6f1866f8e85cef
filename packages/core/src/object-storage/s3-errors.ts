/**
 * What stores answer instead of what was asked for, as errors that say what to do. Stores tell apart by a
 * code in XML; where that is missing (HEAD has no body) the status must do. Neither host nor bucket is
 * named: whoever calls a tool does not learn where it leads.
 */
import type { JsonValue } from "../json.ts";
import { parseRetryAfter } from "../blind/reply.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import type { EgressResponse } from "../ports/egress.ts";
import { withDelivery } from "../errors/delivery.ts";
import { textOf } from "./xml.ts";
import { readAtMost } from "../read-body.ts";

/** A refusal as the store words it. */
export interface S3Refusal {
  readonly status: number;
  /** For example `NoSuchKey`; empty where nothing was said. */
  readonly reason: string;
  readonly message: string;
  /** Where the bucket is, if the store says that it is elsewhere. */
  readonly region: string | undefined;
  readonly requestId: string | undefined;
  readonly retryAfterMs: number | undefined;
  /** The store's clock, milliseconds. */
  readonly date: number | undefined;
}

export interface RefusedRequest {
  /** Name of the tool, for messages. */
  readonly toolName: string;
  /** Of an object that has to be there, as the caller named it. */
  readonly key?: string | undefined;
  readonly redact: (text: string) => string;
}

/** Errors are short; whatever is longer is none that a store has written. */
const longestError = 65_536;
const longestMessage = 300;

export async function readRefusal(response: EgressResponse): Promise<S3Refusal> {
  const { bytes } = await readAtMost(response.body, longestError).catch(() => ({ bytes: new Uint8Array() }));
  return toRefusal(response, Buffer.from(bytes).toString("utf8"));
}

/** @param xml the answer's body, or a part of one */
export function toRefusal({ status, headers }: Pick<EgressResponse, "status" | "headers">, xml: string): S3Refusal {
  const header = (name: string): string | undefined => {
    const value = headers[name];
    return typeof value === "string" ? value : undefined;
  };
  const isText = (text: string | undefined, pattern: RegExp): text is string =>
    text !== undefined && pattern.test(text);
  const reason = textOf(xml, "Code");
  const region = header("x-amz-bucket-region") ?? textOf(xml, "Region");
  const requestId = header("x-amz-request-id") ?? textOf(xml, "RequestId");
  const date = Date.parse(header("date") ?? "");
  return {
    status,
    reason: isText(reason, /^[\w.-]{1,64}$/) ? reason : "",
    message: (textOf(xml, "Message") ?? "").replaceAll(/\s+/g, " ").trim(),
    region: isText(region, /^[a-z0-9-]{1,64}$/) ? region : undefined,
    requestId: isText(requestId, /^[\w=+/.-]{1,128}$/) ? requestId : undefined,
    retryAfterMs: parseRetryAfter(header("retry-after")),
    date: Number.isNaN(date) ? undefined : date,
  };
}

/** Of a write that must not overwrite: the three ways in which stores say that something is there. */
export function saysItIsThere({ status, reason }: S3Refusal): boolean {
  return status === 412 || reason === "FileAlreadyExists" || reason === "ObjectAlreadyExists";
}

/** Another request is writing the same key at this moment; nothing is decided. */
export function saysConflict({ status, reason }: S3Refusal): boolean {
  return status === 409 && reason === "ConditionalRequestConflict";
}

export function saysItIsMissing({ status, reason }: S3Refusal): boolean {
  return status === 404 && (reason === "NoSuchKey" || reason === "" || reason === "NotFound");
}

/** The error of a refusal; the store has answered, so nothing is in doubt. */
export function toS3Error(refusal: S3Refusal, request: RefusedRequest): GatewayError {
  return withDelivery(errorOf(refusal, request), "answered");
}

function errorOf(refusal: S3Refusal, request: RefusedRequest): GatewayError {
  const { toolName, key } = request;
  if (key !== undefined && saysItIsMissing(refusal)) {
    return new GatewayError("object_not_found", `There is no object '${shorten(key)}'; 'list' shows what there is.`, {
      param: "key",
      toolName,
    });
  }
  if (refusal.status === 416) {
    return new GatewayError("invalid_arguments", "'offset' lies beyond the end of the object.", {
      param: "offset",
      toolName,
    });
  }
  const { status, reason, requestId, retryAfterMs } = refusal;
  const extra: Record<string, JsonValue> = {
    // Stores say 400 of a body that came too slowly; that may pass, as 408 says.
    status: reason === "RequestTimeout" ? 408 : status,
    ...(reason === "" ? {} : { reason }),
    ...(refusal.region === undefined ? {} : { region: refusal.region }),
    ...(requestId === undefined ? {} : { upstream_request_id: requestId }),
  };
  return new GatewayError("tool_failed", messageOf(refusal, request), {
    toolName,
    extra,
    ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
  });
}

function messageOf(refusal: S3Refusal, { toolName, redact }: RefusedRequest): string {
  const { status, reason, region } = refusal;
  const message = shorten(redact(refusal.message));
  const said = [String(status), reason, ...(message === "" ? [] : [`(${message})`])].filter((part) => part !== "");
  const advice =
    region !== undefined && isElsewhere(refusal)
      ? `the bucket is in region '${region}'; set 'config.region' to it`
      : (advices[reason] ?? adviceByStatus[status]);
  return `'${toolName}': the object store answered ${said.join(" ")}${advice === undefined ? "" : `; ${advice}`}.`;
}

/** Names another region because of which it did not answer; of other refusals the region is no news. */
function isElsewhere({ status, reason }: S3Refusal): boolean {
  return (status >= 300 && status < 400) || regionReasons.has(reason);
}

const regionReasons: ReadonlySet<string> = new Set([
  "AuthorizationHeaderMalformed",
  "IllegalLocationConstraintException",
  "PermanentRedirect",
  "TemporaryRedirect",
]);

const elsewhere =
  "the bucket is in another region or has another address; set 'config.region', or 'config.endpoint' where one is given";
const virtual = "this store does not take buckets in paths; set 'config.addressing' to 'virtual'";
const inPlace = "check 'config.bucket', 'config.endpoint' and 'config.addressing'";
const notAllowed =
  "check what the access key may do with this bucket and key (without the right to list, a missing object is answered so, too)";

const advices: Readonly<Record<string, string>> = {
  NoSuchBucket: "check 'config.bucket' and 'config.region'",
  InvalidBucketName: inPlace,
  MethodNotAllowed: inPlace,
  AccessDenied: notAllowed,
  InvalidAccessKeyId: "check 'config.access_key_id'",
  // Versity's gateway.
  XAdminUserNotFound: "check 'config.access_key_id'",
  SignatureDoesNotMatch: "check 'config.secret_access_key' and 'config.region'",
  InvalidToken: "set 'config.session_token' to a current one, or leave it out with lasting keys",
  ExpiredToken: "set 'config.session_token' to a current one",
  RequestTimeTooSkewed: "the clock of this gateway differs from the store's by minutes; set it right",
  AuthorizationHeaderMalformed: "check 'config.region'",
  PermanentRedirect: elsewhere,
  TemporaryRedirect: elsewhere,
  PathStyleDomainForbidden: virtual,
  SecondLevelDomainForbidden: virtual,
  SlowDown: "it asks to be called less often",
  EntityTooLarge: "the object is larger than the store takes",
};

const adviceByStatus: Readonly<Record<number, string>> = {
  301: elsewhere,
  307: elsewhere,
  403: notAllowed,
  404: inPlace,
};

function shorten(text: string): string {
  return text.length > longestMessage ? `${text.slice(0, longestMessage)}…` : text;
}
