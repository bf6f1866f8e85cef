/** Signatures against what the vendors have published, and what their own libraries make of the same input. */
import { describe, expect, test } from "vitest";
import { verifies } from "../../../../test/support/verifies.ts";
import { sdkCanonicalHash, sha256Hex, signAcs3, signSdk, signTc3, signWsse } from "./signing.ts";

const signatureOf = (authorization: string | undefined): string | undefined =>
  /Signature=([0-9a-f]+)$/.exec(authorization ?? "")?.[1];

describe(`ACS3-HMAC-SHA256 ${verifies("SMS-3")}`, () => {
  const keys = { id: "YourAccessKeyId", secret: "YourAccessKeySecret" };
  const nonce = "3156853299f313e23d1673dc12e1703d";
  const authorizationOf = (request: Parameters<typeof signAcs3>[1]): string | undefined =>
    signAcs3(keys, request).find(([name]) => name === "authorization")?.[1];

  test("signs the example of the vendor's manual", () => {
    const authorization = authorizationOf({
      host: "ecs.cn-shanghai.aliyuncs.com",
      action: "RunInstances",
      version: "2014-05-26",
      date: "2023-10-26T10:22:32Z",
      nonce,
      query: { RegionId: "cn-shanghai", ImageId: "win2019_1809_x64_dtc_zh-cn_40G_alibase_20230811.vhd" },
    });
    expect(authorization).toBe(
      "ACS3-HMAC-SHA256 Credential=YourAccessKeyId,SignedHeaders=host;x-acs-action;x-acs-content-sha256;x-acs-date;x-acs-signature-nonce;x-acs-version,Signature=06563a9e1b43f5dfe96b81484da74bceab24a1d853912eee15083a6f0f3283c0",
    );
  });

  test("signs SendSms as the vendor's library does", () => {
    const authorization = authorizationOf({
      host: "dysmsapi.aliyuncs.com",
      action: "SendSms",
      version: "2017-05-25",
      date: "2026-11-27T08:00:00Z",
      nonce,
      query: {
        PhoneNumbers: "13800138000",
        SignName: "示例签名",
        TemplateCode: "SMS_154950909",
        TemplateParam: '{"code":"123456"}',
        OutId: "trace-001",
      },
    });
    expect(signatureOf(authorization)).toBe("3ca90e027d42305ba9a7493f8d801c8be5bec1e3fe80f4ee3f85baaa23f8131b");
  });
});

describe(`TC3-HMAC-SHA256 ${verifies("SMS-3")}`, () => {
  test("signs the example of the vendor's manual", () => {
    const body = String.raw`{"Limit": 1, "Filters": [{"Values": ["\u672a\u547d\u540d"], "Name": "instance-name"}]}`;
    expect(sha256Hex(body)).toBe("35e9c5b0e3ae67532d3c9f17ead6c90222632e5b1ff7f6e89887f1398934f064");
    const masked = "*".repeat(32);
    const authorization = signTc3(
      { id: `AKID${masked}`, secret: masked },
      {
        host: "cvm.tencentcloudapi.com",
        service: "cvm",
        action: "DescribeInstances",
        contentType: "application/json; charset=utf-8",
        timestamp: 1_551_113_065,
        body,
      },
    );
    expect(authorization).toBe(
      `TC3-HMAC-SHA256 Credential=AKID${masked}/2019-02-25/cvm/tc3_request, SignedHeaders=content-type;host;x-tc-action, Signature=10b1a37a7301a02ca19a647ad722d5e43b4b3cff309d421d85b46093f6ab6c4f`,
    );
  });

  test("signs SendSms", () => {
    const body =
      '{"PhoneNumberSet":["+8613800138000"],"SmsSdkAppId":"1400006666","SignName":"示例签名","TemplateId":"1110","TemplateParamSet":["123456","5"]}';
    const authorization = signTc3(
      { id: "AKIDEXAMPLE", secret: "SECRETEXAMPLE" },
      {
        host: "sms.tencentcloudapi.com",
        service: "sms",
        action: "SendSms",
        contentType: "application/json; charset=utf-8",
        timestamp: 1_795_766_400,
        body,
      },
    );
    expect(signatureOf(authorization)).toBe("bccba294c998cdaa2348fa8631b993bfe465ed49bc204eb2a23a359d6028a4c4");
  });
});

describe(`Huawei Cloud ${verifies("SMS-3")}`, () => {
  const keys = { id: "c8RWg3ggEcyd4D3p94bf3Y7x1Ile", secret: "q4Ii87BhST9vcs8wvrzN80SfD7Al" };
  const send = {
    method: "POST",
    host: "smsapi.cn-north-4.myhuaweicloud.com:443",
    path: "/sms/batchSendSms/v1",
    date: "20261127T080000Z",
  };

  test("hashes the example of the vendor's manual", () => {
    const request = {
      method: "GET",
      host: "service.region.example.com",
      path: "/v1/77b6a44cba5143ab91d13ab9a8ff44fd/vpcs",
      query: { limit: "2", marker: "13551d6b-755d-4757-b956-536f674975c0" },
      contentType: "application/json",
      date: "20191115T033655Z",
      body: "",
    };
    expect(sdkCanonicalHash(request).hash).toBe("b25362e603ee30f4f25e7858e8a7160fd36e803bb2dfe206278659d71a9bcd7a");
  });

  test("signs as the vendor's library does", () => {
    const body =
      '{"from":"8823040504797","smsContent":[{"to":["+8613800138000"],"templateId":"8ff55eac1d0b478ab3c06c3c6a492300","templateParas":["369751"]}]}';
    expect(signatureOf(signSdk(keys, { ...send, contentType: "application/json", body }))).toBe(
      "b467b1148c07612a358dc900866534276c964e81e547594a50a5b0d0ef324933",
    );
  });

  test("signs a form", () => {
    const body =
      "from=8823040504797&to=%2B8613800138000&templateId=8ff55eac1d0b478ab3c06c3c6a492300&templateParas=%5B%22369751%22%5D";
    const authorization = signSdk(keys, { ...send, contentType: "application/x-www-form-urlencoded", body });
    expect(authorization).toBe(
      "SDK-HMAC-SHA256 Access=c8RWg3ggEcyd4D3p94bf3Y7x1Ile, SignedHeaders=content-type;host;x-sdk-date, Signature=309b012143bd054c15c7ec3357d0fad5c70a187991273018006aff6fe6326096",
    );
  });

  test("makes the digest of WSSE", () => {
    const token = signWsse(keys, { nonce: "66C92B11FF8A425FB8D4CCFE0ED9ED1F", created: "2018-02-12T15:30:20Z" });
    expect(token).toContain('PasswordDigest="b940svd8LOR/H1k3jdTjdB6YT+z2xDBfxFYXGzY3gOg="');
  });
});
