/** What a node that holds subscriptions asks its gateway, over the connection that it has for its tools. */
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import { isErrorCode } from "@toolyard/core/errors/catalog";
import type { JsonObject } from "@toolyard/core/json";
import type { ReceivedMessage } from "@toolyard/core/ports/message-consumer";
import type { OpenSubscription } from "@toolyard/core/subscriptions/assign";
import { fromWire } from "@toolyard/core/subscriptions/account-wire";
import type { Brought, Held, SubscriptionDesk } from "@toolyard/core/subscriptions/holder";
import { mostHeaders } from "@toolyard/core/subscriptions/message";
import type { HolderReport } from "@toolyard/core/subscriptions/subscription";
import type { Taken } from "@toolyard/core/subscriptions/take";
import { toMessageId } from "@toolyard/platform/mq/received-text";
import { version } from "../version.ts";
import { AnsweredError, readDone, readHeld, readOpened, readTaken, readUpload } from "./frames.ts";
import { LinkLost, type NodeLink } from "./link.ts";

/** A body that fits into a frame together with the rest of its message, once it is base64. */
const longestInline = 16_000;
const longestHeader = 8_192;
const longestHeaders = 12_000;

export interface DeskOptions {
  readonly link: NodeLink;
  readonly node: string;
  readonly instance: string;
  /** @throws where it did not arrive */
  readonly upload: (url: string, headers: Readonly<Record<string, string>>, body: Uint8Array) => Promise<void>;
  /** The key may not consume, and asking again is of no use. */
  readonly onRefused: (message: string) => void;
}

export function createDesk({ link, node, instance, upload, onRefused }: DeskOptions): SubscriptionDesk {
  return {
    async hold(reports) {
      const message = { type: "subscription.hold", node, instance, reports: reports.map(toWireReport) };
      const held = await passing(link.askNow(message, readHeld)).catch((thrown: unknown) => {
        if (thrown instanceof GatewayError && thrown.code === "permission_denied") onRefused(thrown.message);
        throw thrown;
      });
      return held === undefined ? undefined : toHeld(held);
    },
    async open(id, signal) {
      const opened = await answered(
        link.ask({ type: "subscription.open", subscription: id, instance }, readOpened, signal),
      );
      if (opened === undefined) throw new GatewayError("shutting_down", "The node is stopping.");
      return readOpening(opened);
    },
    async bring(brought) {
      const isUploaded = await uploadIfLarge(brought, { link, instance, upload });
      const { subscription, fingerprint } = brought;
      const message = toWireMessage(brought, isUploaded);
      const taken = await answered(
        link.ask(
          { type: "subscription.message", subscription, fingerprint, instance, message },
          readTaken,
          brought.signal,
        ),
      );
      return taken === undefined ? undefined : toTaken(taken);
    },
    async release() {
      await link.askNow({ type: "subscription.release", instance }, readDone);
    },
  };
}

/** @throws GatewayError for what only newer programs know, such as another kind of broker */
function readOpening(answer: JsonObject): OpenSubscription {
  try {
    return fromWire(answer);
  } catch (error) {
    throw new GatewayError(
      "tool_failed",
      `This node's program (version ${version}) does not understand what it is to consume; bring it up to date.`,
      { cause: error },
    );
  }
}

function toHeld({ subscriptions, beat_ms: beatMs, lease_ms: leaseMs }: ReturnType<typeof readHeld>): Held {
  return {
    subscriptions: subscriptions.map(({ id, name, fingerprint }) => ({ id, name, fingerprint })),
    beatMs,
    leaseMs,
  };
}

function toWireReport({ id, state, error, waiting, inHand, counts, lastMessageAt }: HolderReport): JsonObject {
  return {
    subscription: id,
    state,
    error: error === null ? null : { ...error },
    waiting,
    in_hand: inHand,
    ...counts,
    last_message_at: lastMessageAt,
  };
}

function toWireMessage({ message, delivery, inOrder }: Brought, isUploaded: boolean): JsonObject {
  const { body, contentType, headers, key, place, at, isRedelivered, unreadable } = message;
  const id = toMessageId(message.id);
  return {
    delivery,
    ...(id === undefined ? {} : { message_id: id }),
    ...(isUploaded ? { uploaded: true } : isLarge(message) ? {} : { body: Buffer.from(body).toString("base64") }),
    bytes: body.byteLength,
    ...(contentType === undefined ? {} : { content_type: contentType.slice(0, 256) }),
    headers: someOf(headers),
    ...(key === undefined ? {} : { key: key.slice(0, 4_096) }),
    place: { ...place },
    // What producers take for a time may be none.
    ...(at === undefined || !Number.isFinite(at) ? {} : { at }),
    ...(unreadable === undefined ? {} : { unreadable: unreadable.slice(0, 1_024) }),
    redelivered: isRedelivered,
    in_order: inOrder,
  };
}

/** As many as a frame takes beside the body. */
function someOf(headers: ReceivedMessage["headers"]): Record<string, string> {
  let bytes = 0;
  return Object.fromEntries(
    Object.entries(headers)
      .filter(([name, value]) => name.length <= 256 && value.length <= longestHeader)
      .slice(0, mostHeaders)
      .filter(([name, value]) => (bytes += Buffer.byteLength(JSON.stringify([name, value]))) <= longestHeaders),
  );
}

function isLarge({ body }: ReceivedMessage): boolean {
  return body.byteLength > longestInline;
}

/** @returns whether it was: one that is too large is told about without its body, and refused */
async function uploadIfLarge(
  { message, maxMessageBytes, subscription, delivery, signal }: Brought,
  { link, instance, upload }: Pick<DeskOptions, "link" | "instance" | "upload">,
): Promise<boolean> {
  const { byteLength: bytes } = message.body;
  if (!isLarge(message) || bytes > maxMessageBytes) return false;
  const wanted = { type: "subscription.upload", subscription, instance, delivery, bytes };
  const place = await answered(link.ask(wanted, readUpload, signal));
  if (place === undefined) return false;
  await upload(place.url, place.headers, message.body);
  return true;
}

function toTaken(taken: ReturnType<typeof readTaken>): Taken {
  switch (taken.outcome) {
    case "accepted":
    case "duplicate":
      return { kind: taken.outcome, callId: taken.call_id };
    case "dead":
      return { kind: "dead", code: taken.code, message: taken.message };
    case "refused":
      return { kind: "refused", code: taken.code, message: taken.message, retryAfterMs: taken.retry_after_ms };
    case "later":
      return { kind: "later", code: taken.code, message: taken.message, retryAfterMs: taken.retry_after_ms };
    case "withdrawn":
      return { kind: "withdrawn" };
    default:
      return taken satisfies never;
  }
}

/** @throws GatewayError with what the gateway has against it */
async function answered<T>(answer: Promise<T>): Promise<T> {
  try {
    return await answer;
  } catch (thrown) {
    if (!(thrown instanceof AnsweredError)) throw thrown;
    throw new GatewayError(isErrorCode(thrown.code) ? thrown.code : "tool_failed", thrown.message);
  }
}

/** Undefined where the gateway is away. */
async function passing<T>(answer: Promise<T>): Promise<T | undefined> {
  try {
    return await answered(answer);
  } catch (thrown) {
    if (thrown instanceof LinkLost) return undefined;
    throw thrown;
  }
}
