import { describe, expect, test } from "vitest";
import { createFakeCore, unscripted } from "../../../test/support/fake-core.ts";
import { createFakeClock } from "@toolyard/platform/memory/fake-clock";
import { verifies } from "../../../test/support/verifies.ts";
import type { CallRepo } from "./ports/calls.ts";
import type { Repos } from "./ports/repos.ts";
import { tick } from "./tick.ts";

describe(`a tick ${verifies("API-5", "CHAT-13")}`, () => {
  test("does the rest where a part of it cannot be done, and says what that met", async () => {
    const done: string[] = [];
    const note = (what: string) => (): Promise<number> => {
      done.push(what);
      return Promise.resolve(0);
    };
    const calls: CallRepo = {
      ...unscripted<CallRepo>("repos.calls"),
      sweep: () => Promise.reject(new Error("the queue is away")),
      expire: note("calls"),
    };
    const oauth: Repos["oauth"] = { ...unscripted<Repos["oauth"]>("repos.oauth"), expire: note("oauth") };
    const core = createFakeCore({ repos: { calls, oauth } });
    await expect(tick(core)).rejects.toThrow("schedules.due was not expected");
    expect(done).toEqual(["calls", "oauth"]);
    // One line for each, not only for the one that is thrown.
    expect(
      core.lines.filter(({ message }) => message === "a part of the tick could not be done").length,
    ).toBeGreaterThan(2);
  });

  test("goes on with what it has not come to the end of", async () => {
    let left = 1_050;
    const expire = (limit: number): Promise<number> => {
      const gone = Math.min(limit, left);
      left -= gone;
      return Promise.resolve(gone);
    };
    const calls: CallRepo = { ...unscripted<CallRepo>("repos.calls"), expire };
    const core = createFakeCore({ repos: { calls } });
    await expect(tick(core)).rejects.toThrow("was not expected");
    expect(left).toBe(0);
  });

  test("lets nothing wait for more than one of many sessions whose files have to go", async () => {
    const happened: string[] = [];
    let left = 3;
    const sessions: Repos["sessions"] = {
      ...unscripted<Repos["sessions"]>("repos.sessions"),
      takeExpired: (limit) => {
        const taken = Array.from({ length: Math.min(limit, left) }, () => ({ tenant: "ten_1", id: `s${left--}` }));
        happened.push(...taken.map(({ id }) => id));
        return Promise.resolve(taken);
      },
    };
    const expire = (): Promise<number> => {
      happened.push("connections to others");
      return Promise.resolve(0);
    };
    const oauth: Repos["oauth"] = { ...unscripted<Repos["oauth"]>("repos.oauth"), expire };
    const core = createFakeCore({ repos: { sessions, oauth } });
    await expect(tick(core)).rejects.toThrow("was not expected");
    expect(happened).toEqual(["s3", "connections to others", "s2", "s1"]);
  });

  test("says that the clock of the machine is wrong, once for each time that it is", async () => {
    const clock = createFakeClock();
    let apartMs = 0;
    const schedules: Repos["schedules"] = {
      ...unscripted<Repos["schedules"]>("repos.schedules"),
      due: () => Promise.resolve({ due: [], now: clock.now() + apartMs }),
    };
    const core = createFakeCore({ core: { clock }, repos: { schedules } });
    for (const now of [4_000, 3_600_000, 3_600_000, 0, -90_000]) {
      apartMs = now;
      await expect(tick(core)).rejects.toThrow("was not expected");
    }
    const told = core.lines.filter(({ message }) => message.startsWith("the clock of this machine"));
    expect(told.map(({ fields }) => fields["reason"])).toEqual([
      "3600 s behind the database",
      "90 s ahead of the database",
    ]);
  });
});
