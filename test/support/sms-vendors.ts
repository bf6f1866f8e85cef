/**
 * The four SMS vendors on the wire, as far as they say no: wrong signature, stale time, used nonce, unknown
 * template or signature, missing parameter, bad number. Signatures are recomputed here from the bytes that came,
 * by code of its own.
 */
import { createHash, createHmac } from "node:crypto";
import type { ServerResponse } from "node:http";
import { startHttpStub, type RecordedRequest, type StubReply } from "./http-stub.ts";

export type VendorName = "aliyun" | "tencent" | "huawei" | "twilio";

export interface SentSms {
  readonly to: string;
  readonly template: string | undefined;
  readonly params: unknown;
  readonly text: string | undefined;
  readonly sign: string | undefined;
  readonly id: string;
  readonly callId: string | undefined;
  readonly receiptUrl: string | undefined;
}

export interface VendorStub {
  readonly url: string;
  /** `account` of a service. */
  readonly account: Record<string, unknown>;
  readonly secret: string;
  /** Template that takes the parameter `code`. */
  readonly template: string;
  readonly sent: SentSms[];
  /** Requests to send something. */
  calls(): number;
  mood: "well" | "silent" | "broken";
  /** Code by E.164 number. */
  readonly refuses: Map<string, string>;
  /** A whole answer instead of what it would say. */
  override: StubReply | undefined;
  /** Milliseconds by which the vendor's clock is ahead. */
  aheadMs: number;
  readonly requests: readonly RecordedRequest[];
  close(): Promise<void>;
}

interface Talk {
  readonly request: RecordedRequest;
  readonly stub: VendorStub;
  readonly now: number;
  readonly nonces: Set<string>;
}

interface Wire {
  readonly secret: string;
  readonly template: string;
  account(url: string): Record<string, unknown>;
  sends(request: RecordedRequest): boolean;
  answer(talk: Talk): StubReply;
}

const hex = (text: string | Buffer): string => createHash("sha256").update(text).digest("hex");
const mac = (key: string | Buffer, text: string): Buffer => createHmac("sha256", key).update(text).digest();
const strict = (text: string): string =>
  [...Buffer.from(text, "utf8")]
    .map((byte) =>
      /[A-Za-z0-9_.~-]/.test(String.fromCharCode(byte))
        ? String.fromCharCode(byte)
        : `%${byte.toString(16).toUpperCase().padStart(2, "0")}`,
    )
    .join("");
const json = (body: unknown, status = 200): StubReply => ({
  status,
  headers: { "content-type": "application/json" },
  body: JSON.stringify(body),
});
const header = ({ headers }: RecordedRequest, name: string): string => String(headers[name] ?? "");
let counter = 0;
const nextId = (prefix: string): string => `${prefix}${String((counter += 1)).padStart(32 - prefix.length, "0")}`;

const aliyun: Wire = {
  secret: "sentinel-of-aliyun",
  template: "SMS_001",
  account: (endpoint) => ({ access_key_id: "LTAI-test", access_key_secret: aliyun.secret, endpoint }),
  sends: (request) => header(request, "x-acs-action") === "SendSms",
  answer({ request, stub, now, nonces }) {
    const fail = (Code: string, status = 400): StubReply =>
      json({ Code, Message: `${Code} it is`, RequestId: "r1" }, status);
    const [, id, names = "", signature] =
      /^ACS3-HMAC-SHA256 Credential=([^,]+),SignedHeaders=([^,]+),Signature=([0-9a-f]{64})$/.exec(
        header(request, "authorization"),
      ) ?? [];
    if (id !== "LTAI-test") return fail("InvalidAccessKeyId.NotFound", 404);
    const [path = "", query = ""] = request.target.split("?");
    const parameters = new URLSearchParams(query);
    const sorted = [...parameters]
      .map(([key, value]) => `${strict(key)}=${strict(value)}`)
      .sort()
      .join("&");
    const lines = names
      .split(";")
      .map((name) => `${name}:${header(request, name).trim()}\n`)
      .join("");
    const canonical = `${request.method}\n${path}\n${sorted}\n${lines}\n${names}\n${hex(request.body)}`;
    if (mac(stub.secret, `ACS3-HMAC-SHA256\n${hex(canonical)}`).toString("hex") !== signature)
      return fail("SignatureDoesNotMatch");
    if (Math.abs(Date.parse(header(request, "x-acs-date")) - now) > 900_000) return fail("InvalidTimeStamp.Expired");
    const nonce = header(request, "x-acs-signature-nonce");
    if (nonces.has(nonce)) return fail("SignatureNonceUsed");
    nonces.add(nonce);
    if (header(request, "x-acs-action") !== "SendSms")
      return json({ Code: "OK", RequestId: "r1", SmsTemplateList: [] });
    const to = parameters.get("PhoneNumbers") ?? "";
    if (!/^(?:1[3-9]\d{9}|[2-9]\d{7,14})$/.test(to)) return fail("isv.MOBILE_NUMBER_ILLEGAL", 200);
    const number = to.startsWith("1") && to.length === 11 ? `+86${to}` : `+${to}`;
    if (parameters.get("TemplateCode") !== stub.template) return fail("isv.SMS_TEMPLATE_ILLEGAL", 200);
    if (parameters.get("SignName") !== "示例签名") return fail("isv.SMS_SIGNATURE_ILLEGAL", 200);
    const params: unknown = JSON.parse(parameters.get("TemplateParam") ?? "{}");
    if (typeof params !== "object" || params === null || !("code" in params))
      return fail("isv.TEMPLATE_MISSING_PARAMETERS", 200);
    const code = stub.refuses.get(number);
    if (code !== undefined) return fail(code, code.startsWith("Throttling") ? 400 : 200);
    const biz = nextId("900");
    stub.sent.push({
      to: number,
      template: stub.template,
      params,
      text: undefined,
      sign: "示例签名",
      id: biz,
      callId: parameters.get("OutId") ?? undefined,
      receiptUrl: undefined,
    });
    return json({ Code: "OK", Message: "OK", BizId: biz, RequestId: "r1" });
  },
};

const tencent: Wire = {
  secret: "sentinel-of-tencent",
  template: "1110",
  account: (endpoint) => ({ secret_id: "AKIDtest", secret_key: tencent.secret, sdk_app_id: "1400006666", endpoint }),
  sends: (request) => header(request, "x-tc-action") === "SendSms",
  answer({ request, stub, now }) {
    const fail = (Code: string): StubReply =>
      json({ Response: { Error: { Code, Message: `${Code} it is` }, RequestId: "r3" } });
    const [, id, day = "", names = "", signature] =
      /^TC3-HMAC-SHA256 Credential=([^/]+)\/([\d-]+)\/sms\/tc3_request, SignedHeaders=([^,]+), Signature=([0-9a-f]{64})$/.exec(
        header(request, "authorization"),
      ) ?? [];
    if (id !== "AKIDtest") return fail("AuthFailure.SecretIdNotFound");
    const time = Number(header(request, "x-tc-timestamp"));
    const lines = names
      .split(";")
      .map((name) => `${name}:${header(request, name).trim().toLowerCase()}\n`)
      .join("");
    const canonical = `POST\n/\n\n${lines}\n${names}\n${hex(request.body)}`;
    const key = mac(mac(mac(`TC3${stub.secret}`, day), "sms"), "tc3_request");
    const expected = mac(key, `TC3-HMAC-SHA256\n${time}\n${day}/sms/tc3_request\n${hex(canonical)}`).toString("hex");
    if (expected !== signature) return fail("AuthFailure.SignatureFailure");
    if (Math.abs(time * 1_000 - now) > 300_000) return fail("AuthFailure.SignatureExpire");
    if (header(request, "x-tc-action") !== "SendSms")
      return json({ Response: { DescribeTemplateStatusSet: [], RequestId: "r3" } });
    const body = JSON.parse(request.body.toString("utf8"));
    const statuses = body.PhoneNumberSet.map((number: string) => {
      const code =
        stub.refuses.get(number) ??
        (body.TemplateId !== stub.template
          ? "FailedOperation.TemplateIncorrectOrUnapproved"
          : number.startsWith("+86") && body.SignName !== "示例签名"
            ? "FailedOperation.SignatureIncorrectOrUnapproved"
            : body.TemplateParamSet.length !== 1 || typeof body.TemplateParamSet[0] !== "string"
              ? "InvalidParameterValue.TemplateParameterFormatError"
              : "Ok");
      const id = code === "Ok" ? nextId("5000:") : "";
      if (code === "Ok")
        stub.sent.push({
          to: number,
          template: body.TemplateId,
          params: body.TemplateParamSet,
          text: undefined,
          sign: body.SignName,
          id,
          callId: body.SessionContext,
          receiptUrl: undefined,
        });
      return {
        SerialNo: id,
        PhoneNumber: number,
        Fee: 1,
        Code: code,
        Message: code === "Ok" ? "send success" : `${code} it is`,
      };
    });
    const isThrottled = statuses.every(({ Code }: { Code: string }) => Code.startsWith("RequestLimitExceeded"));
    return isThrottled
      ? fail("RequestLimitExceeded")
      : json({ Response: { SendStatusSet: statuses, RequestId: "r3" } });
  },
};

const huawei: Wire = {
  secret: "sentinel-of-huawei",
  template: "8ff55eac1d0b478ab3c06c3c6a492300",
  account: (endpoint) => ({ app_key: "c8RWtest", app_secret: huawei.secret, channel: "8823040504797", endpoint }),
  sends: (request) => request.body.includes("templateId="),
  answer({ request, stub, now, nonces }) {
    const fail = (code: string, status = 400): StubReply => json({ code, description: `${code} it is` }, status);
    if (header(request, "content-type") !== "application/x-www-form-urlencoded") return fail("E000001");
    const authorization = header(request, "authorization");
    if (authorization.startsWith("SDK-HMAC-SHA256")) {
      const [, id, names = "", signature] =
        /^SDK-HMAC-SHA256 Access=([^,]+), SignedHeaders=([^,]+), Signature=([0-9a-f]{64})$/.exec(authorization) ?? [];
      const date = header(request, "x-sdk-date");
      const lines = names
        .split(";")
        .map((name) => `${name}:${header(request, name).trim()}\n`)
        .join("");
      const canonical = `POST\n${request.target}/\n\n${lines}\n${names}\n${hex(request.body)}`;
      const expected = mac(stub.secret, `SDK-HMAC-SHA256\n${date}\n${hex(canonical)}`).toString("hex");
      const at = Date.parse(date.replace(/^(\d{4})(\d\d)(\d\d)T(\d\d)(\d\d)(\d\d)Z$/, "$1-$2-$3T$4:$5:$6Z"));
      if (id !== "c8RWtest" || expected !== signature || !(Math.abs(at - now) < 900_000)) return fail("E000102", 401);
    } else {
      if (authorization !== 'WSSE realm="SDP",profile="UsernameToken",type="Appkey"') return fail("E000002", 401);
      const [, id, digest, nonce = "", created = ""] =
        /^UsernameToken Username="([^"]+)",PasswordDigest="([^"]+)",Nonce="([A-Za-z0-9]{1,128})",Created="([^"]+)"$/.exec(
          header(request, "x-wsse"),
        ) ?? [];
      const secret = `${nonce}${created}${stub.secret}`;
      const taken = [createHash("sha256").update(secret).digest("base64"), Buffer.from(hex(secret)).toString("base64")];
      if (id !== "c8RWtest") return fail("E000101", 401);
      if (!taken.includes(digest ?? "") || nonces.has(nonce) || !(Math.abs(Date.parse(created) - now) < 86_400_000))
        return fail("E000103", 401);
      nonces.add(nonce);
    }
    const form = new URLSearchParams(request.body.toString("utf8"));
    if (form.get("from") !== "8823040504797" || !form.has("to") || !form.has("templateId")) return fail("E000503");
    if (form.get("templateId") !== stub.template) return fail("E000505");
    const params: unknown = JSON.parse(form.get("templateParas") ?? "[]");
    const result = (form.get("to") ?? "").split(",").map((number) => {
      const status = stub.refuses.get(number) ?? (/^\+\d+$/.test(number) ? "000000" : "E200028");
      const id = nextId("hw-");
      if (status === "000000")
        stub.sent.push({
          to: number,
          template: stub.template,
          params,
          text: undefined,
          sign: form.get("signature") ?? undefined,
          id,
          callId: form.get("extend") ?? undefined,
          receiptUrl: form.get("statusCallback") ?? undefined,
        });
      return {
        originTo: number,
        createTime: "2026-11-27T08:00:00Z",
        from: "8823040504797",
        smsMsgId: id,
        status,
        countryId: "CN",
        total: 1,
      };
    });
    if (result.every(({ status }) => status === "E000623")) return fail("E000623");
    const isWhole = result.every(({ status }) => status === "000000");
    return json({
      code: isWhole ? "000000" : "E000510",
      description: isWhole ? "Success" : "SMS fails to be sent",
      result,
    });
  },
};

const twilioSid = `AC${"0".repeat(32)}`;
/** Of a standard API key. */
export const twilioKeySid = `SK${"2".repeat(32)}`;
const twilio: Wire = {
  secret: "sentinel-of-twilio",
  template: `HX${"1".repeat(32)}`,
  account: (endpoint) => ({ account_sid: twilioSid, auth_token: twilio.secret, from: "+15005550006", endpoint }),
  sends: (request) => request.method === "POST" && new URLSearchParams(request.body.toString("utf8")).has("To"),
  answer({ request, stub }) {
    const fail = (code: number, status = 400): StubReply =>
      json({ code, message: `${code} it is`, more_info: `https://www.twilio.com/docs/errors/${code}`, status }, status);
    const proofOf = (user: string): string => `Basic ${Buffer.from(`${user}:${stub.secret}`).toString("base64")}`;
    const given = header(request, "authorization");
    const isKey = given === proofOf(twilioKeySid);
    if (!isKey && given !== proofOf(twilioSid)) return fail(20003, 401);
    const base = `/2010-04-01/Accounts/${twilioSid}`;
    // Keys other than main ones may do everything but this.
    if (request.method === "GET" && request.target === `${base}.json`)
      return isKey ? fail(20003, 401) : json({ sid: twilioSid, status: "active" });
    if (request.method !== "POST" || request.target !== `${base}/Messages.json`) return fail(20404, 404);
    const form = new URLSearchParams(request.body.toString("utf8"));
    const to = form.get("To");
    if (to === null) return fail(21604);
    if (!/^\+\d{8,15}$/.test(to)) return fail(21211);
    if (form.get("From") !== "+15005550006") return fail(21212);
    const code = stub.refuses.get(to);
    if (code !== undefined) return { ...fail(Number(code), code === "20429" ? 429 : 400) };
    const template = form.get("ContentSid") ?? undefined;
    if (template !== undefined && template !== stub.template) return fail(21655);
    if (template === undefined && !form.has("Body")) return fail(21602);
    const sid = nextId("SM");
    const receiptUrl = form.get("StatusCallback") ?? undefined;
    const variables = form.get("ContentVariables");
    const params: unknown = variables === null ? undefined : JSON.parse(variables);
    const callId = receiptUrl === undefined ? undefined : (new URL(receiptUrl).searchParams.get("call") ?? undefined);
    stub.sent.push({
      to,
      template,
      params,
      text: form.get("Body") ?? undefined,
      sign: undefined,
      id: sid,
      callId,
      receiptUrl,
    });
    return json(
      { sid, status: "queued", to, from: "+15005550006", num_segments: "1", error_code: null, error_message: null },
      201,
    );
  },
};

const wires: Readonly<Record<VendorName, Wire>> = { aliyun, tencent, huawei, twilio };

export async function startVendorStub(name: VendorName): Promise<VendorStub> {
  const wire = wires[name];
  let calls = 0;
  const nonces = new Set<string>();
  const http = await startHttpStub((request, response: ServerResponse) => {
    if (wire.sends(request)) calls += 1;
    if (wire.sends(request) && stub.mood === "silent") return { delayMs: 60_000 };
    if (wire.sends(request) && stub.mood === "broken") {
      stub.mood = "well";
      response.destroy();
      return undefined;
    }
    return stub.override ?? wire.answer({ request, stub, now: Date.now() + stub.aheadMs, nonces });
  });
  const stub: VendorStub = {
    url: http.url,
    account: wire.account(http.url),
    secret: wire.secret,
    template: wire.template,
    sent: [],
    calls: () => calls,
    mood: "well",
    refuses: new Map(),
    override: undefined,
    aheadMs: 0,
    requests: http.requests,
    close: () => http.close(),
  };
  return stub;
}
