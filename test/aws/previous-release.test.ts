/** During a deployment the functions of the release before serve on the schema of this one, beside this one's. */
import { randomUUID } from "node:crypto";
import { readFile } from "node:fs/promises";
import { afterAll, beforeAll, describe, expect, inject, test } from "vitest";
import { describeWalkThrough } from "../e2e/walk-through.ts";
import { createDriver, type Client, type TestTenant } from "../support/gateway-client.ts";
import { startHttpStub, type HttpStub } from "../support/http-stub.ts";
import { readingTool, writingTool } from "../support/http-tools.ts";
import { verifies } from "../support/verifies.ts";
import type { Deployment } from "./deployment.ts";
import { openGroundOfAws, scopesOfPreviousRelease, startPreviousRelease, startTwoReleasesHome } from "./home.ts";
import type { Ground } from "./home.ts";
import { releaseFile } from "./previous-release/previous-release.ts";

describe.skipIf(inject("runtimeClientMissing") !== "")("under the runtime client", () => {
  describeWalkThrough({ "this release and the one before it, request by request": startTwoReleasesHome }, 2);

  describe("what one release was asked for and the other one carries out", () => {
    const releases = ["the release before", "this release"] as const;
    type Release = (typeof releases)[number];
    let ground: Ground;
    let backEnd: HttpStub;
    let deployments: Readonly<Record<Release, Deployment>>;
    let tenant: TestTenant;

    beforeAll(async () => {
      [ground, backEnd] = await Promise.all([openGroundOfAws(), startHttpStub()]);
      const [before, now] = await Promise.all([startPreviousRelease(ground), ground.start()]);
      deployments = { "the release before": before, "this release": now };
      const scopes = scopesOfPreviousRelease;
      tenant = await createDriver(now.url, ground.services.adminKey, { asDeclared: false, scopes }).newTenant();
      await tenant.addPlugin(readingTool(backEnd));
      await tenant.addPlugin({ ...writingTool(backEnd), sensitive: true });
    });
    afterAll(async () => {
      await Promise.all([...Object.values(deployments).map((one) => one.close()), backEnd.close()]);
      await ground.close();
    });

    const callerOf = (release: Release): Client =>
      createDriver(deployments[release].url, ground.services.adminKey, { asDeclared: false }).client(tenant.key);

    /** Only this one takes what is queued. */
    function letWork(release: Release): void {
      for (const other of releases) {
        for (const trigger of deployments[other].triggers) {
          if (other === release) trigger.resume();
          else trigger.pause();
        }
      }
    }

    describe.each([
      { asked: releases[0], works: releases[1] },
      { asked: releases[1], works: releases[0] },
    ])("$asked, then $works", ({ asked, works }) => {
      test(`a queued call, whose result both read from the bucket ${verifies("CHAT-13")}`, async () => {
        letWork(works);
        const body = `${asked} `.repeat(20_000);
        backEnd.answer = () => ({ headers: { "content-type": "text/plain" }, body });
        const before = backEnd.requests.length;
        const asker = callerOf(asked);
        const { id } = await asker.post("/v1/tools/invoke", { name: "lookup", arguments: { q: "x" }, async: true });
        await expect
          .poll(async () => (await asker.get(`/v1/calls/${id}`)).state, { timeout: 30_000 })
          .toBe("completed");
        expect(backEnd.requests).toHaveLength(before + 1);
        for (const release of releases) {
          const result = await callerOf(release).send("get", `/v1/calls/${id}/result`);
          expect([result.status, result.text === body]).toEqual([200, true]);
        }
      });

      test(`a call that was approved at the other release ${verifies("CHAT-11")}`, async () => {
        letWork(works);
        backEnd.answer = () => ({ body: '{"ordered":true}' });
        const before = backEnd.requests.length;
        const asker = callerOf(asked);
        const waiting = await asker.send("post", "/v1/tools/invoke", {
          name: "create_order",
          arguments: { sku: "S1" },
        });
        expect([waiting.status, waiting.json.status]).toEqual([202, "input_required"]);
        const { id } = waiting.json;
        await callerOf(works).post(`/v1/calls/${id}/approve`);
        await expect
          .poll(async () => (await asker.get(`/v1/calls/${id}`)).state, { timeout: 30_000 })
          .toBe("completed");
        expect(backEnd.requests).toHaveLength(before + 1);
      });

      test("the same request with its key gives the outcome that the other release kept", async () => {
        backEnd.answer = () => ({ body: '{"n":1}' });
        const before = backEnd.requests.length;
        const request = { name: "lookup", arguments: { q: asked } };
        const key = { "idempotency-key": randomUUID() };
        const first = await callerOf(asked).send("post", "/v1/tools/invoke", request, { headers: key });
        const second = await callerOf(works).send("post", "/v1/tools/invoke", request, { headers: key });
        expect([first.status, second.status, second.json.id]).toEqual([200, 200, first.json.id]);
        expect(second.headers.get("idempotent-replayed")).toBe("true");
        expect(backEnd.requests).toHaveLength(before + 1);
      });
    });
  });
});

test("the release before is recorded by its commit", async () => {
  expect(JSON.parse(await readFile(releaseFile, "utf8"))).toEqual({
    version: expect.stringMatching(/^\d+\.\d+\.\d+$/),
    commit: expect.stringMatching(/^[0-9a-f]{40}$/),
    apiTransferMode: expect.stringMatching(/^(BUFFERED|STREAM)$/),
  });
});
