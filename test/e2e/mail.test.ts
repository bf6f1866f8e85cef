/** `mail://` through the whole gateway, against a real SMTP server (MAIL-1 to MAIL-5, SVCERR-1). */
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import type { Json, Reply, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { startSmtpStub, type SmtpStub } from "../support/smtp-stub.ts";
import { localCertificate } from "../support/tls-pair.ts";
import { verifies } from "../support/verifies.ts";

let gateway: Gateway;
let smtp: SmtpStub;
let tenant: TestTenant;
const password = "p4ss of the shop";

beforeAll(async () => {
  gateway = await startGateway();
  smtp = await startSmtpStub({ user: { name: "shop", password }, size: 2_000_000 });
  tenant = await gateway.newTenant();
  await tenant.client.expect("put", "/v1/credentials/SMTP_PASSWORD", { value: password });
  await create("marketing", {
    templates: {
      alert: {
        description: "A system is in trouble.",
        subject: "Trouble with {{ system }}",
        text: "{{ system }}: {{ error }}",
        html: "<p>{{ system }}: <b>{{ error }}</b></p>",
        variables: { system: "its name", error: "what is wrong" },
      },
    },
    profiles: {
      welcome: { description: "Greets a new customer.", headers: { "List-Unsubscribe": "<https://example.com/u>" } },
      notify: { template: "alert", free_text: false, allowed_recipients: ["@example.com"] },
    },
  });
});
afterAll(async () => {
  await gateway.close();
  await smtp.close();
});
afterEach(() => {
  smtp.refuses.clear();
  smtp.onData = "take";
});

function account(): Json {
  return {
    host: "127.0.0.1",
    port: smtp.port,
    tls: { ca: localCertificate },
    username: "shop",
    password: { credential: "SMTP_PASSWORD" },
    from: { address: "shop@example.com", name: "Der Laden 商店" },
  };
}

async function create(serviceId: string, more: Json): Promise<Json> {
  return tenant.client.post("/v1/tool-services", {
    scheme: "mail",
    service_id: serviceId,
    config: { ...account(), ...more },
  });
}

const invoke = (uri: string, args: Json, more: Json = {}): Promise<Reply> =>
  tenant.client.send("post", "/v1/tools/invoke", { uri, arguments: args, ...more });

async function sent(uri: string, args: Json): Promise<{ readonly result: Json; readonly mails: SmtpStub["mails"] }> {
  const before = smtp.mails.length;
  const { status, json, text } = await invoke(uri, args);
  expect(status, text).toBe(200);
  return { result: JSON.parse(json.content), mails: smtp.mails.slice(before) };
}

async function refused(uri: string, args: Json): Promise<Json> {
  const before = smtp.begun;
  const { status, json } = await invoke(uri, args);
  expect(smtp.begun).toBe(before);
  return { status, ...json.error };
}

const hello = { to: "user@example.com", subject: "欢迎", body: "欢迎注册" };

describe(`mail:// sends ${verifies("MAIL-1", "MAIL-2", "MAIL-3", "MAIL-4", "MAIL-5")}`, () => {
  test("plain text, and gives status and message id", async () => {
    const { result, mails } = await sent("mail://marketing/welcome", hello);
    expect(result).toMatchObject({
      status: "sent",
      message_id: expect.stringMatching(/^<call_[0-9a-z]{26}\.1@example\.com>$/),
      recipients: [{ to: "user@example.com", status: "accepted" }],
    });
    expect(mails).toHaveLength(1);
    const [{ parsed, from, to } = fail()] = mails;
    expect({ from, to }).toEqual({ from: "shop@example.com", to: ["user@example.com"] });
    expect(parsed.subject).toBe("欢迎");
    expect(parsed.text?.trim()).toBe("欢迎注册");
    expect(parsed.messageId).toBe(result.message_id);
    expect(parsed.from?.value).toEqual([{ address: "shop@example.com", name: "Der Laden 商店" }]);
    expect(parsed.headers.get("content-type")).toMatchObject({ value: "text/plain" });
    expect(parsed.headers.get("list")).toMatchObject({ unsubscribe: { url: "https://example.com/u" } });
  });

  test("over a connection that was encrypted before the password", async () => {
    await sent("mail://marketing/welcome", hello);
    expect(smtp.logins.at(-1)).toEqual({ username: "shop", secure: true });
  });

  test("one after another over one connection, until the password is another one", async () => {
    await sent("mail://marketing/welcome", hello);
    const { length } = smtp.logins;
    await sent("mail://marketing/welcome", hello);
    await sent("mail://marketing/welcome", hello);
    expect(smtp.logins).toHaveLength(length);
    await tenant.client.expect("put", "/v1/credentials/SMTP_PASSWORD", { value: password });
    await sent("mail://marketing/welcome", hello);
    expect(smtp.logins).toHaveLength(length + 1);
  });

  test("HTML", async () => {
    const args = { ...hello, body: "<h1>欢迎</h1>", contentType: "html" };
    const { mails } = await sent("mail://marketing/welcome", args);
    expect(mails[0]?.parsed.headers.get("content-type")).toMatchObject({ value: "text/html" });
    expect(mails[0]?.parsed.html).toBe("<h1>欢迎</h1>");
  });

  test("attachments as parts of their own", async () => {
    const bytes = Buffer.from(Array.from({ length: 5_000 }, (_, index) => index % 256));
    const args = {
      ...hello,
      attachments: [
        { name: "报告 2026.pdf", content: bytes.toString("base64") },
        { name: "notes.txt", content: "as it is", encoding: "utf-8" },
      ],
    };
    const { mails } = await sent("mail://marketing/welcome", args);
    const [{ parsed } = fail()] = mails;
    expect(parsed.headers.get("content-type")).toMatchObject({ value: "multipart/mixed" });
    expect(parsed.attachments.map(({ filename, contentType }) => [filename, contentType])).toEqual([
      ["报告 2026.pdf", "application/pdf"],
      ["notes.txt", "text/plain"],
    ]);
    expect(parsed.attachments[0]?.content.equals(bytes)).toBe(true);
    expect(parsed.attachments[1]?.content.toString()).toBe("as it is");
  });

  test("files of the session and results of earlier calls", async () => {
    const session = "sess_mail";
    const { status } = await tenant.client.send("put", `/v1/sessions/${session}/files/out/report.csv`, undefined, {
      raw: "a,b\n1,2\n",
      headers: { "content-type": "text/csv" },
    });
    expect(status).toBeLessThan(300);
    const earlier = await invoke("mail://marketing/welcome", hello);
    const args = {
      ...hello,
      attachments: [
        { name: "report.csv", file: "out/report.csv" },
        { name: "result.json", result: earlier.json.id },
      ],
    };
    const before = smtp.mails.length;
    const reply = await invoke("mail://marketing/welcome", args, { session_id: session });
    expect(reply.status, reply.text).toBe(200);
    const [{ parsed } = fail()] = smtp.mails.slice(before);
    expect(parsed.attachments.map(({ content }) => content.toString())).toEqual(["a,b\n1,2\n", earlier.json.content]);
  });

  test("templates, with variables escaped in HTML", async () => {
    const args = {
      to: "ops@example.com",
      template: "alert",
      variables: { system: "订单系统", error: "<超时> {{ password }}" },
    };
    const { mails } = await sent("mail://marketing/notify", args);
    const [{ parsed } = fail()] = mails;
    expect(parsed.subject).toBe("Trouble with 订单系统");
    expect(parsed.text?.trim()).toBe("订单系统: <超时> {{ password }}");
    expect(parsed.html).toContain("<b>&lt;超时&gt; {{ password }}</b>");
  });

  test("one mail to each recipient, who see nothing of each other", async () => {
    smtp.refuses.set("gone@example.com", 550).set("later@example.com", 451);
    const to = ["a@example.com", "gone@example.com", { address: "b@example.com", name: "Bé" }, "later@example.com"];
    const { result, mails } = await sent("mail://marketing/welcome", { ...hello, to });
    expect(result.status).toBe("partial");
    expect(result.recipients).toEqual([
      { to: "a@example.com", status: "accepted", message_id: expect.any(String) },
      {
        to: "gone@example.com",
        status: "rejected",
        message_id: expect.any(String),
        code: 550,
        reason: expect.stringContaining("No such user here"),
      },
      { to: "b@example.com", status: "accepted", message_id: expect.any(String) },
      {
        to: "later@example.com",
        status: "deferred",
        message_id: expect.any(String),
        code: 451,
        reason: expect.stringContaining("Greylisted"),
      },
    ]);
    expect(mails.map(({ to: rcpt }) => rcpt)).toEqual([["a@example.com"], ["b@example.com"]]);
    expect(mails.map(({ raw }) => raw.includes("b@example.com"))).toEqual([false, true]);
    expect(new Set(mails.map(({ parsed }) => parsed.messageId)).size).toBe(2);
  });

  test("one mail to all with cc and bcc, whom nobody sees", async () => {
    smtp.refuses.set("cc@example.com", 550);
    const args = {
      ...hello,
      to: ["a@example.com"],
      cc: "cc@example.com",
      bcc: ["secret@example.com", "a@example.com"],
    };
    const { result, mails } = await sent("mail://marketing/welcome", args);
    expect(result.recipients.map((each: Json) => [each.to, each.status])).toEqual([
      ["a@example.com", "accepted"],
      ["cc@example.com", "rejected"],
      ["secret@example.com", "accepted"],
    ]);
    expect(mails).toHaveLength(1);
    expect(mails[0]?.to).toEqual(["a@example.com", "secret@example.com"]);
    expect(mails[0]?.raw.includes("secret@")).toBe(false);
  });
});

describe(`mail:// fails ${verifies("MAIL-5", "SVCERR-1")}`, () => {
  test("where nobody is accepted, naming why", async () => {
    smtp.refuses.set("gone@example.com", 550);
    const error = await refused("mail://marketing/welcome", { ...hello, to: "gone@example.com" });
    expect(error).toMatchObject({
      status: 502,
      code: "tool_failed",
      smtp_code: 550,
      recipients: [{ to: "gone@example.com", status: "rejected" }],
    });
  });

  test("where the server does not know the sender, naming the address", async () => {
    smtp.refuses.set("shop@example.com", 550);
    const error = await refused("mail://marketing/welcome", { ...hello, to: ["ann@example.com", "bob@example.com"] });
    expect(error).toMatchObject({
      code: "tool_failed",
      message:
        "The mail server refused the mail for all recipients: 550 Sender not known here (said of the sender, shop@example.com).",
    });
  });

  test("for now where the server puts it off before it has the mail, and tries again if it may", async () => {
    smtp.refuses.set("grey@example.com", 451);
    const error = await refused("mail://marketing/welcome", { ...hello, to: "grey@example.com" });
    expect(error).toMatchObject({ status: 503, code: "tool_deferred", retryable: true });
    const attempt = invoke("mail://marketing/welcome?max-attempts=3", { ...hello, to: "grey@example.com" });
    setTimeout(() => smtp.refuses.clear(), 150);
    expect((await attempt).status).toBe(200);
  });

  test("without a second try where the mail may have been taken", async () => {
    smtp.onData = "drop";
    const before = smtp.begun;
    const { status, json } = await invoke("mail://marketing/welcome?max-attempts=3", hello);
    expect({ status, code: json.error.code }).toEqual({ status: 502, code: "outcome_unknown" });
    expect(smtp.begun).toBe(before + 1);
  });

  test("where the server refuses what it was given", async () => {
    smtp.onData = 554;
    const { json } = await invoke("mail://marketing/welcome", hello);
    expect(json.error).toMatchObject({ code: "tool_failed", smtp_code: 554 });
  });

  test("where the mail is larger than the server takes", async () => {
    const content = Buffer.alloc(2_000_000).toString("base64");
    const error = await refused("mail://marketing/welcome", { ...hello, attachments: [{ name: "a.bin", content }] });
    expect(error).toMatchObject({
      code: "tool_failed",
      message: "The mail server refused the mail: it is larger than the server takes.",
    });
  });

  test.each([
    ["to", { to: "not an address" }],
    ["to", { to: "a@example.com>\r\nRCPT TO:<evil@example.com" }],
    ["to", { to: "Ann <ann@example.com>" }],
    ["to", { to: { address: "a@example.com", name: "x\r\nBcc: evil@example.com" } }],
    ["cc.0", { cc: ["a@b@example.com,evil@example.com"] }],
    ["replyTo", { replyTo: "a@example.com\nX: y" }],
    ["subject", { subject: "x\r\nBcc: evil@example.com" }],
    ["subject", { subject: "x\u2028y\u0000" }],
    ["template", { template: "alert" }],
    ["body", { body: undefined }],
    ["variables", { variables: { a: 1 } }],
    ["attachments.0.name", { attachments: [{ name: 'a"\r\nX: y', content: "YQ==" }] }],
    ["attachments.0.name", { attachments: [{ name: "../../a.txt", content: "YQ==" }] }],
    ["attachments.0.content", { attachments: [{ name: "a.txt", content: "not base64!" }] }],
    ["attachments.0.content", { attachments: [{ name: "a.txt", content: "aGkab" }] }],
    ["attachments.0.contentType", { attachments: [{ name: "a", content: "YQ==", contentType: "a/b\r\nX: y" }] }],
    ["attachments.0.contentType", { attachments: [{ name: "a", content: "YQ==", contentType: "Multipart/mixed" }] }],
    ["attachments.0", { attachments: [{ name: "a" }] }],
    ["attachments.0.file", { attachments: [{ name: "a", file: "a.txt" }] }],
  ])("before anything leaves for what is wrong in %s", async (param, wrong) => {
    expect(await refused("mail://marketing/welcome", { ...hello, ...wrong })).toMatchObject({
      status: 400,
      code: "invalid_arguments",
      param,
    });
  });

  test("before anything leaves for a variable that is missing, and for one that would change a header", async () => {
    const args = { to: "ops@example.com", template: "alert", variables: { system: "x" } };
    expect(await refused("mail://marketing/notify", args)).toMatchObject({ status: 400, param: "variables.error" });
    const injected = { ...args, variables: { system: "x\r\nBcc: evil@example.com", error: "y" } };
    expect(await refused("mail://marketing/notify", injected)).toMatchObject({ status: 400, param: "subject" });
  });

  test("for recipients and texts that the profile does not allow", async () => {
    const args = { template: "alert", variables: { system: "x", error: "y" } };
    const [inside, outside] = ["ann@example.com", "ann@elsewhere.org"];
    for (const [param, boxes] of [
      ["to", { to: outside }],
      ["to", { to: [inside, outside] }],
      ["cc", { to: inside, cc: outside }],
      ["bcc", { to: inside, bcc: outside }],
    ] as const) {
      const error = await refused("mail://marketing/notify", { ...args, ...boxes });
      expect(error).toMatchObject({ status: 403, code: "permission_denied", param });
    }
    expect(await refused("mail://marketing/notify", hello)).toMatchObject({ status: 400, code: "invalid_arguments" });
  });

  test("for a profile that is not there", async () => {
    expect(await refused("mail://marketing/nobody", hello)).toMatchObject({ status: 404, code: "tool_not_found" });
  });
});

describe(`mail services are checked ${verifies("CFG-1", "SVCERR-1")}`, () => {
  const refusedConfig = async (more: Json): Promise<Json> =>
    (
      await tenant.client.send("post", "/v1/tool-services", {
        scheme: "mail",
        service_id: "wrong",
        config: { ...account(), ...more },
      })
    ).json.error;

  test.each([
    ["config.security", { security: "none" }],
    ["config.username", { username: undefined }],
    ["config.from.address", { from: { address: "nobody" } }],
    ["config.host", { host: "smtp://example.com" }],
    ["config.templates.a.html", { templates: { a: { html: "{% if %" } } }],
    ["config.templates.a.text", { templates: { a: { text: "{% include 'package.json' %}" } } }],
    ["config.profiles.a.template", { profiles: { a: { template: "missing" } } }],
    ["config.profiles.a.headers.Bcc", { profiles: { a: { headers: { Bcc: "x@example.com" } } } }],
    ["config.profiles.a.headers.X-A", { profiles: { a: { headers: { "X-A": "x\r\nBcc: y" } } } }],
  ])("and what is wrong is named: %s", async (param, more) => {
    expect(await refusedConfig(more)).toMatchObject({ code: "invalid_definition", param });
  });

  test("and addresses that may not be reached are refused", async () => {
    const error = await refusedConfig({ host: "169.254.169.254" });
    expect(error).toMatchObject({ code: "egress_denied", param: "config.host" });
  });

  test("by logging in, which tells a wrong password", async () => {
    const right = await create("tested", { profiles: {} });
    const report = await tenant.client.post(`/v1/tool-services/${right.id}/test`);
    expect(report).toMatchObject({ ok: true, detail: expect.stringContaining("STARTTLS; logged in as 'shop'") });
    const wrong = await create("mistyped", { password: "wrong-password-sentinel" });
    const answer = await tenant.client.post(`/v1/tool-services/${wrong.id}/test`);
    expect(answer).toMatchObject({ ok: false, error: { code: "credential_invalid" } });
    expect(JSON.stringify(answer)).not.toContain("wrong-password-sentinel");
  });

  test("by the certificate, which has to be trusted", async () => {
    const stranger = await create("untrusted", { tls: undefined, profiles: { welcome: {} } });
    expect(await tenant.client.post(`/v1/tool-services/${stranger.id}/test`)).toMatchObject({
      ok: false,
      error: { code: "tool_unreachable", message: expect.stringContaining("tls.ca") },
    });
    expect(await refused("mail://untrusted/welcome", hello)).toMatchObject({ code: "tool_unreachable" });
  });
});

function fail(): never {
  throw new Error("no mail has come");
}
