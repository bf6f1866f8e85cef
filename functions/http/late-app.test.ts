import { expect, test } from "vitest";
import { createFakeCore } from "../../test/support/fake-core.ts";
import { defineRoute, type RouteModule } from "./define-route.ts";
import { createLateApp } from "./late-app.ts";

const saying = (method: "get" | "post", path: string): RouteModule =>
  defineRoute({
    method,
    path,
    summary: path,
    tags: ["test"],
    scope: null,
    admission: "none",
    responses: { 200: { description: "ok" } },
    handler: (c) => c.text(path),
  });

test("awaited routes read nothing else; all others are read once, and what is no route is told as ever", async () => {
  const awaited = { first: saying("post", "/first") };
  const all = { ...awaited, other: saying("get", "/others/{id}") };
  let read = 0;
  const app = createLateApp({ core: createFakeCore(), adminKeyHash: "", version: "1" }, awaited, () => {
    read += 1;
    return Promise.resolve(all);
  });
  const ask = async (method: string, path: string): Promise<unknown> => {
    const answer = await app.fetch(new Request(`https://tools.example.com${path}`, { method }), {});
    return [answer.status, answer.status === 200 ? await answer.text() : answer.headers.get("allow")];
  };
  expect(await ask("POST", "/first?x=1")).toEqual([200, "/first"]);
  expect(await ask("GET", "/first")).toEqual([405, "POST"]);
  expect(read).toBe(0);
  expect(await ask("GET", "/others/7")).toEqual([200, "/others/{id}"]);
  expect(await ask("DELETE", "/others/7")).toEqual([405, "GET, HEAD"]);
  expect(await ask("GET", "/nowhere")).toEqual([404, null]);
  expect(read).toBe(1);
});
