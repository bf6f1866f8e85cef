/** Delivery receipts of SMS vendors go into the outcome of the call (SMS-3). */
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Json, Reply, TestTenant } from "../support/gateway-client.ts";
import { startGateway, type Gateway } from "../support/gateway.ts";
import { startVendorStub, type SentSms, type VendorName, type VendorStub } from "../support/sms-vendors.ts";
import { verifies } from "../support/verifies.ts";

let gateway: Gateway;
let other: Gateway;
let tenant: TestTenant;
beforeAll(async () => {
  gateway = await startGateway();
  other = await startGateway({ sharedWith: gateway });
  tenant = await gateway.newTenant();
});
afterAll(async () => {
  await other.close();
  await gateway.close();
});

interface Service {
  readonly stub: VendorStub;
  /** Path of the address for receipts. */
  readonly path: string;
  readonly id: string;
  readonly name: string;
}

let count = 0;
async function start(vendor: VendorName, owner: TestTenant = tenant): Promise<Service> {
  const stub = await startVendorStub(vendor);
  const name = `${vendor}-${(count += 1)}`;
  const service = await owner.client.post("/v1/tool-services", {
    scheme: "sms",
    service_id: name,
    config: {
      vendor,
      account: stub.account,
      sign_name: "示例签名",
      country_code: "86",
      receipts: true,
      profiles: { code: {} },
    },
  });
  const { detail } = await owner.client.post(`/v1/tool-services/${service.id}/test`);
  const [, path = ""] = /taken at https?:\/\/[^/]+(\/v1\/sms\/receipts\/\S+)$/.exec(detail) ?? [];
  expect(path).not.toBe("");
  return { stub, path, id: service.id, name };
}

const invoke = ({ name, stub }: Service, to: Json): Promise<Reply> =>
  tenant.client.send("post", "/v1/tools/invoke", {
    uri: `sms://${name}/code`,
    arguments: { to, template: stub.template, params: { code: "012345" } },
  });

async function recipientsOf(callId: string): Promise<Json> {
  const { bytes } = await tenant.client.send("get", `/v1/calls/${callId}/result`);
  return JSON.parse(bytes.toString()).recipients;
}

const formType = { "content-type": "application/x-www-form-urlencoded" };
const jsonType = { "content-type": "application/json" };

/** A receipt in the vendor's own form. */
const told: Readonly<
  Record<
    VendorName,
    (
      sms: SentSms,
      done: boolean,
    ) => { readonly raw: string; readonly headers: Record<string, string>; readonly query?: string }
  >
> = {
  aliyun: ({ to, id, callId }, done) => ({
    raw: JSON.stringify([
      {
        phone_number: to.slice(3),
        success: done,
        err_code: done ? "DELIVERED" : "MOBILE_ACCOUNT_ABNORMAL",
        biz_id: id,
        out_id: callId,
        sms_size: "1",
      },
    ]),
    headers: jsonType,
  }),
  tencent: ({ to, id }, done) => ({
    raw: JSON.stringify([
      {
        nationcode: "86",
        mobile: to.slice(3),
        report_status: done ? "SUCCESS" : "FAIL",
        errmsg: done ? "DELIVRD" : "UNDELIV",
        description: "",
        sid: id,
      },
    ]),
    headers: jsonType,
  }),
  huawei: ({ to, id, callId }, done) => ({
    raw: new URLSearchParams({
      smsMsgId: id,
      status: done ? "DELIVRD" : "UNDELIV",
      to,
      total: "1",
      sequence: "1",
      ...(callId === undefined ? {} : { extend: callId }),
    }).toString(),
    headers: formType,
  }),
  twilio: ({ to, id, callId }, done) => ({
    raw: new URLSearchParams({
      MessageSid: id,
      SmsSid: id,
      MessageStatus: done ? "delivered" : "undelivered",
      To: to,
      SomethingNew: "x",
      ...(done ? {} : { ErrorCode: "30003" }),
    }).toString(),
    headers: formType,
    query: `?call=${callId ?? ""}`,
  }),
};

const send = (
  path: string,
  { raw, headers, query = "" }: ReturnType<(typeof told)["aliyun"]>,
  through = gateway,
): Promise<Reply> =>
  through.client("").send("post", `${path}${query}`, undefined, { raw, headers: { ...headers, authorization: "" } });

describe.each(["aliyun", "tencent", "huawei", "twilio"] as const)(`receipts of %s ${verifies("SMS-3")}`, (vendor) => {
  test("stand in the outcome, on whichever instance they arrive, and what is final stays", async () => {
    const service = await start(vendor);
    const { json } = await invoke(service, ["13800138000", "13800138001"]);
    const [first, second] = service.stub.sent;
    if (first === undefined || second === undefined) throw new Error("nothing was sent");
    expect((await send(service.path, told[vendor](first, true), other)).status).toBe(200);
    expect(await recipientsOf(json.id)).toMatchObject([
      { to: first.to, status: "accepted", delivery: "delivered" },
      { to: second.to, status: "accepted" },
    ]);
    expect((await send(service.path, told[vendor](second, false))).status).toBe(200);
    const before = await recipientsOf(json.id);
    expect(before).toMatchObject([
      { delivery: "delivered" },
      { delivery: "failed", delivery_code: expect.any(String) },
    ]);
    // Again, and the other way round: nothing changes.
    expect((await send(service.path, told[vendor](second, false))).status).toBe(200);
    expect((await send(service.path, told[vendor](first, false))).status).toBe(200);
    expect(await recipientsOf(json.id)).toEqual(before);
    await service.stub.close();
  });

  test("are not taken for messages that are not known, and not at addresses that are none", async () => {
    const service = await start(vendor);
    const stranger = await gateway.newTenant();
    const theirs = await start(vendor, stranger);
    await invoke(service, "13800138000");
    const [sms] = service.stub.sent;
    if (sms === undefined) throw new Error("nothing was sent");
    const { json } = { json: (await tenant.client.get("/v1/calls?limit=1")).data[0] };
    const before = await recipientsOf(json.id);
    const forged = { ...sms, id: "nobody-knows-this", callId: "call_00000000000000000000000000" };
    expect((await send(service.path, told[vendor](forged, true))).status).toBe(404);
    // Another tenant's address, another service's, and one with a changed signature.
    expect((await send(theirs.path, told[vendor](sms, true))).status).toBe(404);
    const sibling = await start(vendor);
    expect((await send(sibling.path, told[vendor](sms, true))).status).toBe(404);
    const changed = service.path.replace(/.$/, (last) => (last === "A" ? "Q" : "A"));
    expect((await send(changed, told[vendor](sms, true))).status).toBe(404);
    expect(await recipientsOf(json.id)).toEqual(before);
    await tenant.client.expect("delete", `/v1/tool-services/${service.id}?force=true`);
    expect((await send(service.path, told[vendor](sms, true))).status).toBe(404);
    expect(JSON.stringify(gateway.logged)).not.toContain(service.path.split(".").at(-1));
    for (const { stub } of [service, theirs, sibling]) await stub.close();
  });
});

test(`a receipt settles a call whose fate was not known ${verifies("SMS-3")}`, async () => {
  const service = await start("aliyun");
  service.stub.mood = "broken";
  const { json } = await invoke(service, "13800138000");
  expect(json.error.code).toBe("outcome_unknown");
  const call = (await tenant.client.get("/v1/calls?limit=1")).data[0];
  const sms = {
    to: "+8613800138000",
    id: "900^0",
    callId: call.id,
    template: "",
    params: {},
    text: "",
    sign: "",
    receiptUrl: "",
  };
  expect((await send(service.path, told.aliyun(sms, true))).status).toBe(200);
  expect(await tenant.client.get(`/v1/calls/${call.id}`)).toMatchObject({ state: "completed" });
  expect(await recipientsOf(call.id)).toEqual([
    {
      to: "+8613800138000",
      status: "accepted",
      message_id: "900^0",
      delivery: "delivered",
      delivery_code: "DELIVERED",
    },
  ]);
  await service.stub.close();
});

test("a vendor that is too fast is asked to come again", async () => {
  const service = await start("aliyun");
  service.stub.mood = "silent";
  const sending = tenant.client.send("post", "/v1/tools/invoke", {
    uri: `sms://${service.name}/code?timeout=600`,
    arguments: { to: "13800138000", template: service.stub.template, params: { code: "1" } },
  });
  while (service.stub.calls() === 0) await new Promise((done) => setTimeout(done, 5));
  const call = (await tenant.client.get("/v1/calls?limit=1")).data[0];
  const sms = {
    to: "+8613800138000",
    id: "900^1",
    callId: call.id,
    template: "",
    params: {},
    text: "",
    sign: "",
    receiptUrl: "",
  };
  expect((await send(service.path, told.aliyun(sms, true))).status).toBe(409);
  await sending;
  expect((await send(service.path, told.aliyun(sms, true))).status).toBe(200);
  await service.stub.close();
});
