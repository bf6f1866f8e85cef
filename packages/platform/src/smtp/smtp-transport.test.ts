import { createHash, generateKeyPairSync, verify } from "node:crypto";
import { createServer, type AddressInfo, type Server, type Socket } from "node:net";
import { createEgress } from "@toolyard/core/blind/egress";
import type { Egress } from "@toolyard/core/ports/egress";
import type { MailAccount, MailMessage, MailTransport } from "@toolyard/core/ports/mail-transport";
import { deliveryOf } from "@toolyard/core/errors/delivery";
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import { startSmtpStub, type SmtpStub, type SmtpStubOptions } from "../../../../test/support/smtp-stub.ts";
import { localCertificate } from "../../../../test/support/tls-pair.ts";
import { verifies } from "../../../../test/support/verifies.ts";
import { createSmtpTransport } from "./smtp-transport.ts";

let egress: Egress;
let transport: MailTransport;
const closing: (() => Promise<void>)[] = [];

beforeAll(() => {
  egress = createEgress({ allowCidrs: ["127.0.0.0/8"] });
  transport = createSmtpTransport({ egress });
});
afterEach(async () => {
  await Promise.all(closing.splice(0).map((close) => close()));
});
afterAll(() => egress.close());

async function start(options: SmtpStubOptions = {}): Promise<SmtpStub> {
  const stub = await startSmtpStub(options);
  closing.push(() => stub.close());
  return stub;
}

function account(port: number, more: Partial<MailAccount> = {}): MailAccount {
  return { host: "127.0.0.1", port, security: "starttls", tls: { ca: [localCertificate] }, ...more };
}

const never = new AbortController().signal;

const message: MailMessage = {
  messageId: "<call_1.1@example.com>",
  date: new Date("2026-11-28T08:00:00Z"),
  from: { address: "shop@example.com", name: "Shop" },
  to: [{ address: "ann@example.com" }],
  cc: [],
  envelope: { from: "shop@example.com", to: ["ann@example.com"] },
  subject: "Hello",
  text: "Hello.\r\n.\r\nThere was a dot.",
  attachments: [],
  headers: {},
};

const failed = async (work: Promise<unknown>): Promise<Record<string, unknown>> => {
  const error: unknown = await work.then(
    () => undefined,
    (thrown: unknown) => thrown,
  );
  if (!(error instanceof Error)) throw new Error("it did not fail");
  return { code: "code" in error ? error.code : undefined, message: error.message, delivery: deliveryOf(error) };
};

/** A server of our own, for what a real one does not do. */
async function startRaw(talk: (socket: Socket) => void): Promise<number> {
  const server: Server = createServer((socket) => {
    socket.on("error", () => undefined);
    talk(socket);
  });
  await new Promise<void>((done) => void server.listen(0, "127.0.0.1", () => done()));
  closing.push(async () => {
    await new Promise((done) => server.close(done));
  });
  return (server.address() as AddressInfo).port;
}

describe(`SMTP accounts ${verifies("MAIL-1")}`, () => {
  test.each([
    ["tls", { secure: true }],
    ["starttls", {}],
    ["none", { disabledCommands: ["STARTTLS"], allowInsecureAuth: true }],
  ] as const)("are reached with security '%s'", async (security, options) => {
    const stub = await start({
      ...options,
      disabledCommands: [...("disabledCommands" in options ? options.disabledCommands : [])],
      user: { name: "shop", password: "pw" },
    });
    const login = { username: "shop", password: "pw", credential: "PW" };
    const session = await transport.open(account(stub.port, { security, login }), never);
    expect(await session.send(message)).toMatchObject([{ address: "ann@example.com", status: "accepted" }]);
    session.close();
    expect(stub.logins).toEqual([{ username: "shop", secure: security !== "none" }]);
    expect(stub.mails[0]?.parsed).toMatchObject({
      messageId: message.messageId,
      text: "Hello.\n.\nThere was a dot.\n",
    });
  });

  test("are not talked to in clear where STARTTLS is gone", async () => {
    const stub = await start({ hideSTARTTLS: true, disabledCommands: ["STARTTLS"], allowInsecureAuth: true });
    const login = { username: "shop", password: "pw", credential: "PW" };
    const error = await failed(transport.open(account(stub.port, { login }), never));
    expect(error).toMatchObject({
      code: "tool_unreachable",
      delivery: "not_sent",
      message: expect.stringContaining("STARTTLS"),
    });
    expect(stub.logins).toEqual([]);
  });

  test.each([
    ["starttls", { disabledCommands: ["AUTH"] }, "offers no login there; leave out 'config.username'"],
    [
      "none",
      { disabledCommands: ["AUTH", "STARTTLS"] },
      "offers no login in clear; set 'config.security' to 'starttls', or leave out",
    ],
  ] as const)("are not logged in to where the server offers no login: %s", async (security, options, said) => {
    const stub = await start({
      disabledCommands: [...("disabledCommands" in options ? options.disabledCommands : [])],
    });
    const login = { username: "shop", password: "pw", credential: "PW" };
    const error = await failed(transport.open(account(stub.port, { security, login }), never));
    expect(error).toMatchObject({ code: "tool_failed", delivery: "not_sent", message: expect.stringContaining(said) });
    expect(stub.logins).toEqual([]);
  });

  test("are not trusted without a certificate for their name", async () => {
    const stub = await start();
    const stranger = await failed(transport.open(account(stub.port, { tls: undefined }), never));
    expect(stranger).toMatchObject({ code: "tool_unreachable", delivery: "not_sent" });
    const elsewhere = createEgress({
      allowCidrs: ["127.0.0.0/8"],
      resolve: () => Promise.resolve([{ address: "127.0.0.1", family: 4 }]),
    });
    const other = account(stub.port, { host: "mail.example.com" });
    const misnamed = await failed(createSmtpTransport({ egress: elsewhere }).open(other, never));
    expect(misnamed).toMatchObject({ code: "tool_unreachable", message: expect.stringContaining("ALTNAME") });
    await elsewhere.close();
  });

  test("are reached at public addresses only, whatever their name says", async () => {
    const guarded = createEgress({
      allowCidrs: [],
      resolve: () => Promise.resolve([{ address: "127.0.0.1", family: 4 }]),
    });
    for (const host of ["127.0.0.1", "mail.example.com", "169.254.169.254"]) {
      const error = await failed(createSmtpTransport({ egress: guarded }).open(account(25, { host }), never));
      expect(error).toMatchObject({ code: "egress_denied", delivery: "not_sent" });
    }
    await guarded.close();
  });

  test("that put everybody off are tried later", async () => {
    const port = await startRaw((socket) => socket.end("421 4.7.0 Too many connections\r\n"));
    const error = await failed(transport.open(account(port), never));
    expect(error).toMatchObject({
      code: "tool_deferred",
      delivery: "not_sent",
      message: expect.stringContaining("Too many connections"),
    });
  });

  test("that do not speak SMTP, or say nothing, are left", async () => {
    const web = await startRaw((socket) => socket.end("HTTP/1.1 400 Bad Request\r\n\r\n"));
    expect(await failed(transport.open(account(web), never))).toMatchObject({ delivery: "not_sent" });
    const mute = await startRaw(() => undefined);
    const giveUp = new AbortController();
    const opening = failed(transport.open(account(mute), giveUp.signal));
    setTimeout(() => giveUp.abort(), 30);
    expect(await opening).toMatchObject({ code: "call_cancelled", delivery: "not_sent" });
  });
});

describe(`mails ${verifies("MAIL-5")}`, () => {
  test("that were given up while the server had them may have been taken", async () => {
    const stub = await start();
    stub.onData = "silent";
    const giveUp = new AbortController();
    const session = await transport.open(account(stub.port), giveUp.signal);
    const sending = failed(session.send(message));
    while (stub.begun === 0) await new Promise((done) => setTimeout(done, 5));
    giveUp.abort();
    expect(await sending).toMatchObject({ code: "call_cancelled", delivery: "uncertain" });
  });

  test("that broke off in the middle may have been taken, and those after them were not sent", async () => {
    const stub = await start();
    stub.onData = "drop";
    const session = await transport.open(account(stub.port), never);
    expect(await failed(session.send(message))).toMatchObject({ code: "tool_unreachable", delivery: "uncertain" });
    expect(await failed(session.send(message))).toMatchObject({ code: "tool_unreachable", delivery: "not_sent" });
  });

  test("that are answered with what is no SMTP may have been taken", async () => {
    const port = await startRaw((socket) => {
      let isMail = false;
      socket.write("220 here\r\n");
      socket.on("data", (bytes) => {
        if (isMail) socket.write("gibberish\r\n");
        else socket.write(String(bytes).startsWith("DATA") ? "354 go\r\n" : "250 yes\r\n");
        isMail ||= String(bytes).startsWith("DATA");
      });
      closing.push(() => Promise.resolve(void socket.destroy()));
    });
    const session = await transport.open(account(port, { security: "none" }), never);
    expect(await failed(session.send(message))).toMatchObject({
      code: "tool_unreachable",
      delivery: "uncertain",
      message: expect.stringContaining("no SMTP"),
    });
    expect(session.isAlive()).toBe(false);
    session.close();
  });

  test("that are refused do not spoil the next one", async () => {
    const stub = await start();
    const session = await transport.open(account(stub.port), never);
    stub.refuses.set("ann@example.com", 550);
    expect(await session.send(message)).toMatchObject([{ status: "rejected", code: 550 }]);
    stub.refuses.clear();
    stub.onData = 451;
    expect(await session.send(message)).toMatchObject([{ status: "deferred", code: 451 }]);
    stub.onData = "take";
    expect(await session.send(message)).toMatchObject([{ status: "accepted" }]);
    session.close();
  });

  test("of one call after another go over one session, until the server ends it", async () => {
    const stub = await start({ user: { name: "shop", password: "pw" } });
    const login = { username: "shop", password: "pw", credential: "PW" };
    const session = await transport.open(account(stub.port, { login }), never);
    stub.refuses.set("ann@example.com", 550);
    await session.send(message);
    stub.refuses.clear();
    expect(await session.renew(never)).toBe(true);
    expect(await session.send(message)).toMatchObject([{ status: "accepted" }]);
    expect(await session.renew(never)).toBe(true);
    expect(stub.logins).toHaveLength(1);
    await stub.close();
    expect(await session.renew(never)).toBe(false);
    expect(session.isAlive()).toBe(false);
  });

  test("of a call that is given up take their session along", async () => {
    const stub = await start();
    stub.onData = "silent";
    const giveUp = new AbortController();
    const session = await transport.open(account(stub.port), giveUp.signal);
    const sending = failed(session.send(message));
    while (stub.begun === 0) await new Promise((done) => setTimeout(done, 5));
    giveUp.abort();
    await sending;
    expect(session.isAlive()).toBe(false);
  });

  test("are signed with the domain's key", async () => {
    const { privateKey, publicKey } = generateKeyPairSync("rsa", { modulusLength: 2_048 });
    const stub = await start();
    const session = await transport.open(account(stub.port), never);
    const pem = privateKey.export({ type: "pkcs8", format: "pem" }).toString();
    const signing = { domain: "example.com", selector: "s1", privateKey: pem, credential: "DKIM_KEY" };
    await session.send({ ...message, signing });
    const raw = stub.mails[0]?.raw.toString("latin1") ?? "";
    const [head = "", ...rest] = raw.split("\r\n\r\n");
    const signature = /^DKIM-Signature: (.*(?:\r\n[ \t].*)*)/im.exec(head)?.[1] ?? "";
    const tag = (name: string): string =>
      (new RegExp(`(?:^|;)\\s*${name}=([^;]*)`).exec(signature)?.[1] ?? "").replaceAll(/\s/g, "");
    expect([tag("d"), tag("s"), tag("a"), tag("c")]).toEqual(["example.com", "s1", "rsa-sha256", "relaxed/relaxed"]);
    const body = rest
      .join("\r\n\r\n")
      .replaceAll(/[ \t]+\r\n/g, "\r\n")
      .replaceAll(/[ \t]+/g, " ")
      .replace(/(?:\r\n)*$/, "\r\n");
    expect(tag("bh")).toBe(createHash("sha256").update(body, "latin1").digest("base64"));
    const canonical = (line: string): string => {
      const at = line.indexOf(":");
      return `${line.slice(0, at).trim().toLowerCase()}:${line
        .slice(at + 1)
        .replaceAll(/\r\n/g, "")
        .replaceAll(/[ \t]+/g, " ")
        .trim()}`;
    };
    const lines = head.split(/\r\n(?![ \t])/);
    const signed = tag("h")
      .split(":")
      .map((name) => canonical(lines.find((line) => line.toLowerCase().startsWith(`${name.toLowerCase()}:`)) ?? ""));
    const unsigned = canonical(`DKIM-Signature: ${signature}`).replace(/b=[^;]*$/, "b=");
    const bytes = Buffer.from([...signed, unsigned].join("\r\n"), "latin1");
    expect(verify("rsa-sha256", bytes, publicKey, Buffer.from(tag("b"), "base64"))).toBe(true);
    session.close();
  });

  test("are not sent unsigned where the key is none", async () => {
    const stub = await start();
    const session = await transport.open(account(stub.port), never);
    const signing = { domain: "example.com", selector: "s1", privateKey: "no key", credential: "DKIM_KEY" };
    const error = await failed(session.send({ ...message, signing }));
    expect(error).toMatchObject({
      code: "credential_invalid",
      delivery: "not_sent",
      message: expect.stringContaining("DKIM_KEY"),
    });
    expect(stub.begun).toBe(0);
    session.close();
  });
});
