/** `@connections` of a WebSocket API of one's own: who is connected is told by the test. */
import { startAwsServer, type AwsReply, type AwsServer, type AwsService } from "./aws-server.ts";
import type { Signer } from "./sigv4.ts";

export interface ConnectionsServer extends AwsServer {
  /** The stage's address, as in PUSH_URL. */
  readonly stageUrl: string;
  /** Frames by connection; who is not in here is gone. */
  readonly open: Map<string, string[]>;
}

const largestMessage = 128 * 1024;

export async function startConnectionsServer(signer?: Signer): Promise<ConnectionsServer> {
  const open = new Map<string, string[]>();
  const service: AwsService = {
    name: "execute-api",
    refuse: () => fail(403, "ForbiddenException", "Forbidden"),
    handle({ path, method, body }) {
      const [, name] = /^\/live\/(?:@|%40)connections\/([^/]+)$/.exec(path) ?? [];
      if (name === undefined || (method !== "POST" && method !== "DELETE"))
        return fail(403, "MissingAuthenticationTokenException", "Missing");
      const id = decodeURIComponent(name);
      // Ids are base64.
      if (!/^[\w+/-]+=*$/.test(id) || id.length > 100) return fail(400, "BadRequestException", "Invalid connectionId");
      const frames = open.get(id);
      if (frames === undefined) return fail(410, "GoneException", "Gone");
      if (method === "DELETE") {
        open.delete(id);
        return { status: 204 };
      }
      if (body.length > largestMessage) return fail(413, "PayloadTooLargeException", "Message too long");
      frames.push(body.toString("utf8"));
      return { status: 200 };
    },
  };
  const server = await startAwsServer(service, signer);
  return Object.assign(server, { open, stageUrl: `${server.url}/live` });
}

function fail(status: number, type: string, message: string): AwsReply {
  const headers = { "content-type": "application/json", "x-amzn-errortype": type };
  return { status, headers, body: JSON.stringify({ message }) };
}
