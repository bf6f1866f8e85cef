import { expect, onTestFinished, test } from "vitest";
import { callContext } from "../../../../test/support/call-context.ts";
import { startHttpStub } from "../../../../test/support/http-stub.ts";
import { verifies } from "../../../../test/support/verifies.ts";
import { createEgress } from "../blind/egress.ts";
import { HttpPeer } from "./http-peer.ts";

test(`a key in the query is said once, also where the server's own address says it ${verifies("MCP-5")}`, async () => {
  const http = await startHttpStub();
  const egress = createEgress({ allowCidrs: ["127.0.0.0/8"] });
  onTestFinished(async () => {
    await egress.close();
    await http.close();
  });
  const authConfig = {
    type: "api_key",
    mapping: [{ source: "KEY", target: "ak", location: "query" }],
  } as const;
  const peer = new HttpPeer(
    {
      egress,
      credentials: { resolve: () => Promise.resolve(new Map([["KEY", "a+b c"]])) },
      tokens: { accessToken: () => Promise.reject(new Error("nobody asks for a token")) },
    },
    {
      url: `${http.url}/sse`,
      name: "mcp://maps",
      tool: "mcp://maps/*",
      auth: { authConfig: { ...authConfig, mapping: [...authConfig.mapping] }, literals: new Map() },
      headers: {},
      tls: () => Promise.resolve(undefined),
    },
  );
  const options = { context: callContext(), signal: new AbortController().signal, timeoutMs: 5_000 };
  const addresses = ["/messages?session=1", "/messages?ak=a%2Bb+c&session=1", "/messages?ak=other"];
  for (const address of addresses) {
    const url = peer.resolve(address);
    if (url === undefined) throw new Error("not of the same origin");
    await peer.send({ method: "POST", url, headers: [], body: "{}" }, options);
  }
  await peer.send({ method: "GET", headers: [] }, options);
  expect(http.requests.map(({ target }) => target)).toEqual([
    "/messages?session=1&ak=a%2Bb%20c",
    "/messages?ak=a%2Bb+c&session=1",
    "/messages?ak=other&ak=a%2Bb%20c",
    "/sse?ak=a%2Bb%20c",
  ]);
});
