import { describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import type { MailSession } from "../ports/mail-transport.ts";
import { MailSessions } from "./sessions.ts";

interface FakeSession extends MailSession {
  isBroken: boolean;
  isGone: boolean;
  isClosed: boolean;
}

const never = new AbortController().signal;

function start() {
  const clock = { at: 0, now: () => clock.at };
  const opened: FakeSession[] = [];
  const open = (): Promise<MailSession> => {
    const session: FakeSession = {
      isBroken: false,
      isGone: false,
      isClosed: false,
      send: () => Promise.resolve([]),
      isAlive: () => !session.isBroken,
      renew: (signal) => (signal.aborted ? Promise.reject(new Error("given up")) : Promise.resolve(!session.isGone)),
      close: () => {
        session.isClosed = true;
      },
    };
    opened.push(session);
    return Promise.resolve(session);
  };
  const sessions = new MailSessions(clock);
  const mail = (work: (session: MailSession) => Promise<void> = () => Promise.resolve()): Promise<MailSession> =>
    sessions.use(never, open, async (session) => {
      await work(session);
      return session;
    });
  return { clock, opened, sessions, open, mail };
}

describe(`sessions with a mail server ${verifies("MAIL-5")}`, () => {
  test("are used again, one mail at a time", async () => {
    const { mail, opened } = start();
    const first = await mail();
    expect(await mail()).toBe(first);
    await mail(async () => void (await mail()));
    expect(opened).toHaveLength(2);
  });

  test("that broke, that the server has ended, or that were idle for long are closed, and others opened", async () => {
    const { mail, opened, clock } = start();
    await mail(() => {
      for (const session of opened) session.isBroken = true;
      return Promise.resolve();
    });
    const second = await mail();
    for (const session of opened) session.isGone = true;
    const third = await mail();
    clock.at += 60_000;
    const fourth = await mail();
    expect(new Set([second, third, fourth]).size).toBe(3);
    expect(opened.map(({ isClosed }) => isClosed)).toEqual([true, true, true, false]);
  });

  test("end after many mails, and with the service", async () => {
    const { mail, opened, sessions } = start();
    for (let count = 0; count < 120; count += 1) await mail();
    expect(opened).toHaveLength(3);
    await sessions.close();
    expect(opened.every(({ isClosed }) => isClosed)).toBe(true);
  });

  test("in use when the service goes end with their mail", async () => {
    const { mail, opened, sessions } = start();
    await mail(() => sessions.close());
    expect(opened.map(({ isClosed }) => isClosed)).toEqual([true]);
  });

  test("are left where the call was given up meanwhile", async () => {
    const { mail, opened, sessions, open } = start();
    await mail();
    await expect(sessions.use(AbortSignal.abort(), open, () => Promise.resolve())).rejects.toThrow("given up");
    expect(opened.map(({ isClosed }) => isClosed)).toEqual([true]);
  });
});
