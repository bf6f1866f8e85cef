/** HTTP APIs: every method and kind of body, with a token of oauth2-mock-server. */
import { startAuthorizationServer, secretOf } from "../authorization-server.ts";
import { startHttpStub } from "../http-stub.ts";
import type { PeerOperation, ServicePeer } from "./peer.ts";

const methods = ["GET", "POST", "PUT", "PATCH", "DELETE"] as const;

export const apiPeers: readonly ServicePeer[] = [
  {
    scheme: "api",
    name: "an HTTP API with OAuth 2",
    async start() {
      const authority = await startAuthorizationServer();
      const stub = await startHttpStub(({ method, target, headers }) =>
        String(headers["authorization"]).startsWith("Bearer ")
          ? { headers: { "content-type": "application/json" }, body: JSON.stringify({ method, target }) }
          : { status: 401 },
      );
      const asked = (method: string): number => stub.requests.filter((request) => request.method === method).length;
      const operations = methods.map((method): PeerOperation => {
        const gives = new RegExp(`"method":"${method}","target":"/v1/customers/C%2F1`);
        return { tool: method.toLowerCase(), arguments: { id: "C/1" }, gives, count: () => asked(method) };
      });
      const tools = Object.fromEntries(
        methods.map((method) => [
          method.toLowerCase(),
          { description: `${method} of a customer.`, endpoint: "/customers/{id}", method },
        ]),
      );
      return {
        config: {
          base_url: `${stub.url}/v1`,
          auth_type: "oauth2",
          auth_config: {
            client_id: "shop",
            client_secret: secretOf("shop"),
            token_url: `${authority.url}/token`,
          },
          tools,
        },
        operations,
        async close() {
          await stub.close();
          await authority.close();
        },
      };
    },
  },
];
