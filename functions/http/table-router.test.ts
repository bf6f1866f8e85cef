import { Hono } from "hono";
import { describe, expect, test } from "vitest";
import { TableRouter } from "./table-router.ts";

function build(): Hono {
  const app = new Hono({ router: new TableRouter() });
  app.on("GET", "/things/:id", (c) => c.text(`thing ${c.req.param("id")}`));
  app.on("GET", "/things/all", (c) => c.text("all"));
  app.on("POST", "/things/all", (c) => c.text("made"));
  app.on("GET", "/files/:path{.+}", (c) => c.text(`file ${c.req.param("path")}`));
  app.notFound((c) => c.text("nothing", 404));
  return app;
}

describe("the router", () => {
  test.each([
    ["GET", "/things/all", "all"],
    ["POST", "/things/all", "made"],
    ["GET", "/things/7", "thing 7"],
    ["GET", "/things/all?x=1", "all"],
    ["GET", "/files/a/b.txt", "file a/b.txt"],
    ["PUT", "/things/all", "nothing"],
    ["GET", "/things", "nothing"],
    ["GET", "/constructor", "nothing"],
  ])("finds %s %s: %s", async (method, path, text) => {
    const answer = await build().request(path, { method });
    expect(await answer.text()).toBe(text);
  });

  test("answers HEAD as GET without a body", async () => {
    const answer = await build().request("/things/all", { method: "HEAD" });
    expect([answer.status, await answer.text()]).toEqual([200, ""]);
  });
});
