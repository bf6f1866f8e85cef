/**
 * `/ws` behind API Gateway's WebSocket API: one function for `$connect`, `$disconnect` and messages. It
 * holds nothing: who a connection is stands in its row, and answers leave through the push (design "AWS").
 */
import { limitOf } from "@toolyard/core/calls/admit";
import { GatewayError, toGatewayError } from "@toolyard/core/errors/gateway-error";
import { newId } from "@toolyard/core/ids";
import type { Speaker } from "@toolyard/core/ports/connections";
import type { Push, RemotePush } from "@toolyard/core/ports/push";
import { connectClient } from "@toolyard/core/realtime/connect";
import { answerMessage, connectionGone, refuseMessage, silentLifetimeMs } from "@toolyard/core/realtime/messages";
import * as z from "zod";
import type { AppDeps } from "../http/app-env.ts";
import { authenticatorOf } from "../http/authenticator.ts";
import { describeThrown } from "../describe-thrown.ts";
import { toErrorReply } from "../http/errors.ts";
import { nothingAfter } from "../lambda-runtime.ts";
import { readHandshake, subprotocol } from "./handshake.ts";

/** The part of API Gateway's event that is used. */
const eventSchema = z.looseObject({
  requestContext: z.looseObject({
    eventType: z.enum(["CONNECT", "DISCONNECT", "MESSAGE"]),
    connectionId: z.string(),
  }),
  headers: z.record(z.string(), z.string().nullish()).nullish(),
  queryStringParameters: z.record(z.string(), z.string().nullish()).nullish(),
  body: z.string().nullish(),
  isBase64Encoded: z.boolean().nullish(),
});
type SocketEvent = z.infer<typeof eventSchema>;

export interface SocketResult {
  readonly statusCode: number;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
}

export function createSocketHandler(
  app: AppDeps,
  push: RemotePush,
  after = nothingAfter,
): (event: unknown) => Promise<SocketResult> {
  const { core } = app;
  const authenticator = authenticatorOf(app);

  const connect = async (event: SocketEvent): Promise<SocketResult> => {
    const handshake = readHandshake(headerReader(event), (name) => event.queryStringParameters?.[name] ?? undefined);
    const { connectionId: id } = event.requestContext;
    await connectClient(core, authenticator, { ...handshake, id, holder: null, lifetimeMs: silentLifetimeMs });
    return {
      statusCode: 200,
      ...(handshake.offersProtocol ? { headers: { "Sec-WebSocket-Protocol": subprotocol } } : {}),
    };
  };

  const disconnect = async ({ requestContext }: SocketEvent): Promise<SocketResult> => {
    const connection = await core.repos.connections.find(requestContext.connectionId);
    // What is not found runs out by itself.
    if (connection !== undefined) await core.repos.connections.remove(connection.tenant, connection.id);
    return { statusCode: 200 };
  };

  const receive = async ({ requestContext, body, isBase64Encoded }: SocketEvent): Promise<SocketResult> => {
    const { connectionId: id } = requestContext;
    const speaker = await core.repos.connections.findSpeaker(id);
    const text = isBase64Encoded === true ? Buffer.from(body ?? "", "base64").toString("utf8") : (body ?? "");
    if (speaker === undefined) {
      await push.send(id, refuseMessage(connectionGone(), text));
      await push.end(id);
      return { statusCode: 410 };
    }
    const { connection, reached } = speaker;
    // There is no connection here that could be read more slowly, and each message costs what a request does.
    const [frame] = await Promise.all([
      reached === undefined ? answerMessage(core, connection, text) : refuseMessage(overRate(reached), text),
      core.repos.connections.touch(connection.tenant, id, {
        lifetimeMs: silentLifetimeMs,
        counts: reached === undefined,
      }),
    ]);
    if ((await answer(id, frame, text)) === "gone") await core.repos.connections.remove(connection.tenant, id);
    return { statusCode: 200 };
  };

  /** Who has asked would wait for one that API Gateway does not carry. */
  const answer = async (id: string, frame: string, text: string): ReturnType<Push["send"]> => {
    try {
      return await push.send(id, frame);
    } catch (thrown) {
      if (!(thrown instanceof GatewayError) || thrown.code !== "payload_too_large") throw thrown;
      const error = new GatewayError(
        "payload_too_large",
        "The answer is longer than what is carried here; ask for less.",
      );
      return push.send(id, refuseMessage(error, text));
    }
  };

  const handle = { CONNECT: connect, DISCONNECT: disconnect, MESSAGE: receive } as const;
  return async (given) => {
    try {
      const event = eventSchema.parse(given);
      return await handle[event.requestContext.eventType](event);
    } catch (thrown) {
      const error = toGatewayError(thrown);
      const { spec, code } = error;
      core.log.log(spec.http >= 500 ? "error" : "info", "a WebSocket event was refused", {
        status: spec.http,
        code,
        ...(spec.http >= 500 ? describeThrown(thrown) : {}),
      });
      const { status, headers, body } = toErrorReply(error, newId("request"));
      return { statusCode: status, headers, body };
    } finally {
      await after();
    }
  };
}

function overRate({ scope, limit, resetMs }: NonNullable<Speaker["reached"]>): GatewayError {
  const message =
    scope === "nodes"
      ? `More than ${limit} messages per minute of this tenant's nodes; say less, or the same in 'retry_after_ms'.`
      : `More than ${limit} requests per minute for this ${scope}, and each message counts as one; ${limitOf("requests_per_minute", scope)}.`;
  return new GatewayError("rate_limited", message, { retryAfterMs: resetMs, extra: { scope, limit } });
}

function headerReader({ headers }: SocketEvent): (name: string) => string | undefined {
  const byName = new Map(Object.entries(headers ?? {}).map(([name, value]) => [name.toLowerCase(), value]));
  return (name) => byName.get(name) ?? undefined;
}
