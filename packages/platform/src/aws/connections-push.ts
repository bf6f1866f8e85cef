/**
 * Pushes to connections that API Gateway's WebSocket API holds, by `@connections`. The address is the one
 * of the stage itself (`https://{api}.execute-api.{region}.amazonaws.com/{stage}`): a custom domain serves
 * clients and refuses this, so it is a setting and never taken from an event.
 */
import { GatewayError } from "@toolyard/core/errors/gateway-error";
import type { RemotePush } from "@toolyard/core/ports/push";
import { lazily } from "@toolyard/core/once";
import { longestMessage } from "@toolyard/core/realtime/frames";
import { readAwsError, reasonOf, unavailable } from "./aws-error.ts";
import { clientSettings, regionOfUrl, type AwsClientOptions } from "./client-options.ts";

export interface ConnectionsPushOptions {
  readonly url: string;
  readonly client?: Omit<AwsClientOptions, "endpoint">;
}

/**
 * A frame may arrive twice where an answer was lost.
 * @throws GatewayError `payload_too_large`, `push_unavailable`
 */
export function createConnectionsPush({ url, client: given = {} }: ConnectionsPushOptions): RemotePush {
  const load = lazily(async () => {
    const sdk = await import("./sdk/connections.ts");
    const settings = clientSettings({ ...regionOfUrl(url), ...given, endpoint: url });
    return { ...sdk, client: new sdk.ApiGatewayManagementApiClient(settings) };
  });
  return {
    async send(connectionId, frame) {
      const Data = Buffer.from(frame, "utf8");
      if (Data.byteLength > longestMessage) {
        throw new GatewayError(
          "payload_too_large",
          `A frame of ${Data.byteLength} bytes cannot be pushed; API Gateway takes ${longestMessage}. Send what is larger as a blob, and its name here.`,
        );
      }
      try {
        const { client, PostToConnectionCommand } = await load();
        await client.send(new PostToConnectionCommand({ ConnectionId: connectionId, Data }));
        return "sent";
      } catch (cause) {
        if (isGone(cause)) return "gone";
        throw failed("did not push a frame", cause);
      }
    },
    async end(connectionId) {
      try {
        const { client, DeleteConnectionCommand } = await load();
        await client.send(new DeleteConnectionCommand({ ConnectionId: connectionId }));
      } catch (cause) {
        if (!isGone(cause)) throw failed("did not end a connection", cause);
      }
    },
  };
}

function isGone(cause: unknown): boolean {
  const { name, status } = readAwsError(cause);
  // The second: no connection has an id like this.
  return status === 410 || name === "BadRequestException";
}

function failed(what: string, cause: unknown): GatewayError {
  const message = `API Gateway ${what} (${reasonOf(cause)}); see the log, and check PUSH_URL, which must be the stage's own address, and whether the process may use it (execute-api:ManageConnections).`;
  return unavailable("push_unavailable", message, cause);
}
