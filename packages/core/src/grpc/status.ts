/** What a gRPC server's status is called here: an answer that says no, with the status that HTTP has for it. */
import type { ErrorCode } from "../errors/catalog.ts";
import { GatewayError } from "../errors/gateway-error.ts";
import type { EgressResponse } from "../ports/egress.ts";
import { withDelivery, type Delivery } from "../errors/delivery.ts";

interface StatusSpec {
  readonly name: string;
  readonly http: number;
  /** Absent: `tool_failed`. */
  readonly code?: ErrorCode;
  /** Absent: `answered`. */
  readonly delivery?: Delivery;
}

/** By number. */
const statuses: readonly StatusSpec[] = [
  { name: "OK", http: 200 },
  { name: "CANCELLED", http: 499 },
  { name: "UNKNOWN", http: 500 },
  { name: "INVALID_ARGUMENT", http: 400, code: "invalid_arguments" },
  // Whether it was done in the meantime nobody says.
  { name: "DEADLINE_EXCEEDED", http: 504, code: "tool_timeout", delivery: "uncertain" },
  { name: "NOT_FOUND", http: 404 },
  { name: "ALREADY_EXISTS", http: 409 },
  { name: "PERMISSION_DENIED", http: 403 },
  { name: "RESOURCE_EXHAUSTED", http: 429 },
  { name: "FAILED_PRECONDITION", http: 400 },
  { name: "ABORTED", http: 409 },
  { name: "OUT_OF_RANGE", http: 400 },
  { name: "UNIMPLEMENTED", http: 501 },
  { name: "INTERNAL", http: 500 },
  { name: "UNAVAILABLE", http: 503 },
  { name: "DATA_LOSS", http: 500 },
  { name: "UNAUTHENTICATED", http: 401 },
];
const unknown: StatusSpec = { name: "UNKNOWN", http: 500 };

export const notFound = 5;
export const unimplemented = 12;
export const unauthenticated = 16;

/** What came without a status of gRPC's own, from a proxy for example. */
const byHttp: ReadonlyMap<number, number> = new Map([
  [400, 13],
  [401, unauthenticated],
  [403, 7],
  [404, unimplemented],
  [429, 14],
  [502, 14],
  [503, 14],
  [504, 14],
]);

export interface GrpcStatus {
  readonly code: number;
  readonly message: string;
  /** Milliseconds after which the server wants to be asked again. */
  readonly retryAfterMs?: number | undefined;
}

type Headers = EgressResponse["headers"];

/** @param trailers the headers themselves where there was nothing but them */
export function statusOf(httpStatus: number, headers: Headers, trailers: Headers): GrpcStatus {
  const text = one(trailers, "grpc-status") ?? one(headers, "grpc-status");
  if (text === undefined || !/^\d{1,3}$/.test(text)) {
    return {
      code: byHttp.get(httpStatus) ?? 2,
      message: `the answer is none of gRPC (HTTP status ${httpStatus}, content type '${(one(headers, "content-type") ?? "").slice(0, 100)}')`,
    };
  }
  const message = one(trailers, "grpc-message") ?? one(headers, "grpc-message") ?? "";
  const pushback = one(trailers, "grpc-retry-pushback-ms") ?? one(headers, "grpc-retry-pushback-ms") ?? "";
  return {
    code: Number(text),
    message: decode(message),
    retryAfterMs: /^\d{1,9}$/.test(pushback) ? Number(pushback) : undefined,
  };
}

function one(headers: Headers, name: string): string | undefined {
  const value = headers[name];
  return typeof value === "string" || value === undefined ? value : value[0];
}

/** Percent-encoded UTF-8; what is not stays as it came. */
function decode(message: string): string {
  try {
    return decodeURIComponent(message);
  } catch {
    return message;
  }
}

export interface StatusErrorOptions {
  readonly toolName: string;
  /** Takes secrets out of what a server says. */
  readonly redact: (text: string) => string;
}

export function toStatusError(
  { code, message, retryAfterMs }: GrpcStatus,
  { toolName, redact }: StatusErrorOptions,
): GatewayError {
  const { name, http, code: errorCode = "tool_failed", delivery = "answered" } = statuses[code] ?? unknown;
  const said = redact(message).replaceAll(/\s+/g, " ").trim();
  const text = said === "" ? "" : `: ${said.slice(0, 2_000)}`;
  const error = new GatewayError(errorCode, `'${toolName}' answered ${name}${text}`, {
    toolName,
    extra: { status: http, grpc_status: name },
    ...(retryAfterMs === undefined ? {} : { retryAfterMs }),
  });
  return withDelivery(error, delivery);
}
