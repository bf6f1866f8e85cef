/** `sms://` through the whole gateway, against the four vendors on the wire (SMS-1 to SMS-3, SVCERR-1). */
import { afterAll, afterEach, beforeAll, describe, expect, test } from "vitest";
import type { Json, Reply, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { startVendorStub, twilioKeySid, type VendorName, type VendorStub } from "../support/sms-vendors.ts";
import { verifies } from "../support/verifies.ts";

let gateway: Gateway;
let tenant: TestTenant;
const vendors = new Map<VendorName, VendorStub>();
const names: readonly VendorName[] = ["aliyun", "tencent", "huawei", "twilio"];

beforeAll(async () => {
  gateway = await startGateway();
  tenant = await gateway.newTenant();
  for (const name of names) {
    const stub = await startVendorStub(name);
    vendors.set(name, stub);
    await create(name, name);
    await create(`${name}-plain`, name, { plain_template: { template: stub.template, param: "code" } });
  }
});
afterAll(async () => {
  await gateway.close();
  await Promise.all([...vendors.values()].map((stub) => stub.close()));
});
afterEach(() => {
  for (const stub of vendors.values()) {
    stub.refuses.clear();
    stub.sent.length = 0;
    stub.override = undefined;
    stub.aheadMs = 0;
  }
});

function stubOf(name: VendorName): VendorStub {
  const stub = vendors.get(name);
  if (stub === undefined) throw new Error(`there is no ${name}`);
  return stub;
}

function create(serviceId: string, vendor: VendorName, more: Json = {}): Promise<Json> {
  return tenant.client.post("/v1/tool-services", {
    scheme: "sms",
    service_id: serviceId,
    config: {
      vendor,
      account: stubOf(vendor).account,
      sign_name: "示例签名",
      country_code: "86",
      profiles: { verification_code: {}, inland: { allowed_recipients: ["+86"] } },
      ...more,
    },
  });
}

const invoke = (uri: string, args: Json): Promise<Reply> =>
  tenant.client.send("post", "/v1/tools/invoke", { uri, arguments: args });

async function sent(uri: string, args: Json): Promise<Json> {
  const { status, json, text } = await invoke(uri, args);
  expect(status, text).toBe(200);
  return JSON.parse(json.content);
}

async function failed(uri: string, args: Json): Promise<Json> {
  const { status, json } = await invoke(uri, args);
  return { status, ...json.error };
}

const total = (): number => [...vendors.values()].reduce((sum, stub) => sum + stub.calls(), 0);

async function refused(uri: string, args: Json): Promise<Json> {
  const before = total();
  const error = await failed(uri, args);
  expect(total()).toBe(before);
  return error;
}

describe.each(names)(`sms:// with %s ${verifies("SMS-1", "SMS-2", "SMS-3")}`, (name) => {
  const uri = `sms://${name}/verification_code`;
  const code = (to: Json): Json => ({ to, template: stubOf(name).template, params: { code: "012345" } });
  const busy: Readonly<Record<VendorName, string>> = {
    aliyun: "Throttling.User",
    tencent: "RequestLimitExceeded",
    huawei: "E000623",
    twilio: "20429",
  };
  const blocked: Readonly<Record<VendorName, string>> = {
    aliyun: "isv.BUSINESS_LIMIT_CONTROL",
    tencent: "LimitExceeded.PhoneNumberDailyLimit",
    huawei: "E200041",
    twilio: "21610",
  };

  test("sends templates, whose parameters keep their zeros", async () => {
    const result = await sent(uri, code("13800138000"));
    const [message] = stubOf(name).sent;
    expect(message).toMatchObject({
      to: "+8613800138000",
      params: name === "aliyun" ? { code: "012345" } : name === "twilio" ? { code: "012345" } : ["012345"],
    });
    expect(result).toEqual({
      status: "sent",
      message_id: message?.id,
      recipients: [{ to: "+8613800138000", status: "accepted", message_id: message?.id }],
    });
  });

  test("sends texts, in a template where the vendor knows nothing else", async () => {
    const plain = `sms://${name}-plain/verification_code`;
    const result = await sent(plain, { to: "13800138000", content: "欢迎注册" });
    const [message] = stubOf(name).sent;
    expect(result.message_id).toBe(message?.id);
    expect(JSON.stringify([message?.params, message?.text])).toContain("欢迎注册");
    if (name === "twilio") return;
    expect(await refused(uri, { to: "13800138000", content: "欢迎注册" })).toMatchObject({
      status: 400,
      code: "sms_plain_unsupported",
    });
  });

  test("sends what half an emoji is at the end of a text that was cut", async () => {
    await sent(`sms://${name}-plain/verification_code`, { to: "13800138000", content: "好\ud83d" });
    const [message] = stubOf(name).sent;
    expect(JSON.stringify([message?.params, message?.text])).toMatch(/好(?:\ufffd|\\\\ud83d|\\ud83d)/);
  });

  test("says of each recipient what became of it", async () => {
    stubOf(name).refuses.set("+8613800138001", blocked[name]);
    const result = await sent(uri, code(["13800138000", "+86 138-0013-8001", "+8613800138000", "+85261234567"]));
    expect(result.status).toBe("partial");
    expect(result.recipients.map((each: Json) => [each.to, each.status, each.code])).toEqual([
      ["+8613800138000", "accepted", undefined],
      ["+8613800138001", "rejected", blocked[name]],
      ["+85261234567", "accepted", undefined],
    ]);
  });

  test("fails with the vendor's code where nobody was accepted, whatever the HTTP status", async () => {
    stubOf(name).refuses.set("+8613800138000", blocked[name]);
    const before = stubOf(name).calls();
    const error = await failed(`${uri}?max-attempts=3`, code("13800138000"));
    expect(error).toMatchObject({ status: 502, code: "tool_failed", vendor: name, vendor_code: blocked[name] });
    expect(stubOf(name).calls()).toBe(before + 1);
  });

  test("tries again what the vendor had no time for", async () => {
    stubOf(name).refuses.set("+8613800138000", busy[name]);
    expect(await failed(uri, code("13800138000"))).toMatchObject({
      status: 503,
      code: "tool_deferred",
      retryable: true,
      vendor_code: busy[name],
    });
    const attempt = invoke(`${uri}?max-attempts=3`, code("13800138000"));
    setTimeout(() => stubOf(name).refuses.clear(), 100);
    expect((await attempt).status).toBe(200);
    expect(stubOf(name).sent).toHaveLength(1);
  });

  test("names the credential where the account is not taken", async () => {
    const secret = Object.entries(stubOf(name).account).find(([, value]) => value === stubOf(name).secret)?.[0] ?? "";
    const account = { ...stubOf(name).account, [secret]: "a-wrong-one-sentinel" };
    const { id } = await create(`${name}-wrong`, name, { account });
    const error = await failed(`sms://${name}-wrong/verification_code`, code("13800138000"));
    expect(error).toMatchObject({ status: 400, code: "credential_invalid" });
    const report = await tenant.client.post(`/v1/tool-services/${id}/test`);
    expect(report).toMatchObject({ ok: false, error: { code: "credential_invalid" } });
    expect(JSON.stringify([error, report])).not.toContain("a-wrong-one-sentinel");
  });

  test("is tested without a message", async () => {
    const { data } = await tenant.client.get("/v1/tool-services?scheme=sms");
    const { id } = data.find((service: Json) => service.service_id === name);
    const report = await tenant.client.post(`/v1/tool-services/${id}/test`);
    expect(report).toMatchObject({ ok: true });
    expect(stubOf(name).sent).toEqual([]);
  });

  test("does not send again where the vendor's answer says nothing", async () => {
    stubOf(name).override = { status: 500, body: "<html>oops</html>" };
    const before = stubOf(name).calls();
    const error = await failed(`${uri}?max-attempts=3`, code("13800138000"));
    expect(error).toMatchObject({ status: 502, code: "outcome_unknown" });
    expect(stubOf(name).calls()).toBe(before + 1);
  });
});

describe(`the vendors' own ways ${verifies("SMS-3")}`, () => {
  test("Huawei takes keys as AK and SK as well", async () => {
    const { account, template } = stubOf("huawei");
    await create("aksk", "huawei", { account: { ...account, authentication: "aksk" } });
    const result = await sent("sms://aksk/verification_code", { to: "13800138000", template, params: ["369751"] });
    expect(result.status).toBe("sent");
  });

  test("Twilio takes API keys, which may send and not read the account", async () => {
    const account = { ...stubOf("twilio").account, api_key_sid: twilioKeySid };
    const { id } = await create("api-key", "twilio", { account });
    expect(await tenant.client.post(`/v1/tool-services/${id}/test`)).toMatchObject({ ok: true });
    expect((await sent("sms://api-key/verification_code", { to: "+8613800138000", content: "Hello" })).status).toBe(
      "sent",
    );
    const elsewhere = { ...account, account_sid: `AC${"9".repeat(32)}` };
    const { id: wrong } = await create("api-key-elsewhere", "twilio", { account: elsewhere });
    expect(await tenant.client.post(`/v1/tool-services/${wrong}/test`)).toMatchObject({ ok: false });
  });

  test.each(["aliyun", "tencent"] as const)("a stale time is refused by %s and told", async (name) => {
    stubOf(name).aheadMs = 3_600_000;
    const error = await failed(`sms://${name}/verification_code`, {
      to: "13800138000",
      template: stubOf(name).template,
      params: { code: "1" },
    });
    expect(error.vendor_code).toMatch(/Expire/);
  });

  test("an unknown template is refused with the vendor's code", async () => {
    const args = { to: "13800138000", template: "SMS_404", params: { code: "1" } };
    expect(await failed("sms://aliyun/verification_code", args)).toMatchObject({
      vendor_code: "isv.SMS_TEMPLATE_ILLEGAL",
    });
    expect(await failed("sms://tencent/verification_code", args)).toMatchObject({
      vendor_code: "FailedOperation.TemplateIncorrectOrUnapproved",
    });
  });

  test("Tencent's own doubt leaves the message unknown", async () => {
    const body = JSON.stringify({
      Response: { Error: { Code: "InternalError.Timeout", Message: "x" }, RequestId: "r" },
    });
    stubOf("tencent").override = { body };
    const args = { to: "13800138000", template: "1110", params: { code: "1" } };
    expect(await failed("sms://tencent/verification_code?max-attempts=2", args)).toMatchObject({
      code: "outcome_unknown",
    });
  });
});

describe(`sms:// refuses before anything leaves ${verifies("SVCERR-1", "SMS-2")}`, () => {
  test.each([
    ["to", { to: "12345" }],
    ["to", { to: "+8612345678901" }],
    ["to.1", { to: ["13800138000", "13800138000,13900139000"] }],
    ["to", { to: "１３８００１３８０００" }],
    ["template", { content: "both" }],
    ["content", { template: undefined, params: undefined }],
    ["params", { template: undefined, content: "x" }],
  ])("what is wrong in %s", async (param, wrong) => {
    const args = { to: "13800138000", template: "SMS_001", params: { code: "1" }, ...wrong };
    expect(await refused("sms://aliyun/verification_code", args)).toMatchObject({
      status: 400,
      code: "invalid_arguments",
      param,
    });
  });

  test("parameters that the template does not have, or in no order", async () => {
    await create("named", "tencent", { templates: { welcome: { id: "1110", params: ["code"] } } });
    const uri = "sms://named/verification_code";
    const args = { to: "13800138000", template: "welcome" };
    expect(await refused(uri, args)).toMatchObject({ param: "params.code" });
    expect(await refused(uri, { ...args, params: { code: "1", other: "2" } })).toMatchObject({ param: "params.other" });
    expect(await refused(uri, { ...args, params: ["1", "2"] })).toMatchObject({ param: "params" });
    expect((await sent(uri, { ...args, params: { code: "007" } })).status).toBe("sent");
    const free = { to: "13800138000", template: "1110", params: { b: "1", a: "2" } };
    expect(await refused("sms://tencent/verification_code", free)).toMatchObject({ param: "params" });
  });

  test("recipients that the profile does not allow, and profiles that are not there", async () => {
    const args = { to: "+85261234567", template: "SMS_001", params: { code: "1" } };
    for (const to of [args.to, ["13800138000", args.to]]) {
      const error = await refused("sms://aliyun/inland", { ...args, to });
      expect(error).toMatchObject({ status: 403, code: "permission_denied" });
    }
    expect(await refused("sms://aliyun/nobody", args)).toMatchObject({ status: 404, code: "tool_not_found" });
  });

  test.each([
    ["config.vendor", { vendor: "pigeon" }],
    ["config.account.access_key_id", { account: { access_key_secret: "x" } }],
    ["config.account.sdk_app_id", { vendor: "tencent", account: { secret_id: "a", secret_key: "b", sdk_app_id: "x" } }],
    ["config.account.from", { vendor: "twilio", account: { account_sid: `AC${"0".repeat(32)}`, auth_token: "b" } }],
    ["config.profiles.a.template", { templates: { b: {} }, profiles: { a: { template: "c" } } }],
  ])("configurations, naming %s", async (param, more) => {
    const config = { vendor: "aliyun", account: stubOf("aliyun").account, ...more };
    const { json } = await tenant.client.send("post", "/v1/tool-services", {
      scheme: "sms",
      service_id: "wrong",
      config,
    });
    expect(json.error).toMatchObject({ code: "invalid_definition", param });
  });

  test("endpoints that may not be reached", async () => {
    const account = { ...stubOf("aliyun").account, endpoint: "http://169.254.169.254" };
    const body = { scheme: "sms", service_id: "wrong", config: { vendor: "aliyun", account } };
    const { json } = await tenant.client.send("post", "/v1/tool-services", body);
    expect(json.error).toMatchObject({ code: "egress_denied", param: "config.account.endpoint" });
  });
});
