/*
 * Brokers that speak Kafka's protocol: librdkafka's mock cluster, with the topics that the arguments name. Prints
 * its addresses, then does what standard input says: `t <topic> <code>` answers the next produce request with an
 * error, `p <topic>` prints what lies in partition 0, `w <topic> <codec> <count> <value>` publishes a batch of so many
 * messages that is packed so, each with a header without value, `q` ends.
 */
#include <librdkafka/rdkafka.h>
#include <librdkafka/rdkafka_mock.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void print_topic(const char *servers, const char *topic) {
  char error[512];
  rd_kafka_conf_t *conf = rd_kafka_conf_new();
  rd_kafka_conf_set(conf, "bootstrap.servers", servers, error, sizeof error);
  rd_kafka_conf_set(conf, "group.id", "reader", error, sizeof error);
  rd_kafka_conf_set(conf, "enable.partition.eof", "true", error, sizeof error);
  rd_kafka_t *consumer = rd_kafka_new(RD_KAFKA_CONSUMER, conf, error, sizeof error);
  rd_kafka_topic_partition_list_t *list = rd_kafka_topic_partition_list_new(1);
  rd_kafka_topic_partition_list_add(list, topic, 0)->offset = 0;
  rd_kafka_assign(consumer, list);
  for (;;) {
    rd_kafka_message_t *message = rd_kafka_consumer_poll(consumer, 10000);
    if (message == NULL || message->err != RD_KAFKA_RESP_ERR_NO_ERROR) {
      if (message != NULL) rd_kafka_message_destroy(message);
      break;
    }
    printf("message %lld %.*s|%.*s", (long long)message->offset, (int)message->key_len, (const char *)message->key,
           (int)message->len, (const char *)message->payload);
    rd_kafka_headers_t *headers;
    if (rd_kafka_message_headers(message, &headers) == RD_KAFKA_RESP_ERR_NO_ERROR) {
      const char *name;
      const void *value;
      size_t size;
      for (size_t at = 0; rd_kafka_header_get_all(headers, at, &name, &value, &size) == 0; at++)
        printf("|%s=%.*s", name, (int)size, (const char *)value);
    }
    printf("\n");
    rd_kafka_message_destroy(message);
  }
  printf("end\n");
  fflush(stdout);
  rd_kafka_topic_partition_list_destroy(list);
  rd_kafka_consumer_close(consumer);
  rd_kafka_destroy(consumer);
}

static void write_batch(const char *servers, const char *topic, const char *codec, int count, const char *value) {
  char error[512];
  rd_kafka_conf_t *conf = rd_kafka_conf_new();
  rd_kafka_conf_set(conf, "bootstrap.servers", servers, error, sizeof error);
  rd_kafka_conf_set(conf, "compression.codec", codec, error, sizeof error);
  rd_kafka_conf_set(conf, "linger.ms", "100", error, sizeof error);
  rd_kafka_t *producer = rd_kafka_new(RD_KAFKA_PRODUCER, conf, error, sizeof error);
  for (int at = 0; at < count; at++)
    rd_kafka_producev(producer, RD_KAFKA_V_TOPIC(topic), RD_KAFKA_V_PARTITION(0),
                      RD_KAFKA_V_VALUE((void *)value, strlen(value)), RD_KAFKA_V_MSGFLAGS(RD_KAFKA_MSG_F_COPY),
                      RD_KAFKA_V_HEADER("sampled", NULL, -1),
                      RD_KAFKA_V_END);
  printf("left %d\nend\n", (int)rd_kafka_flush(producer, 10000));
  fflush(stdout);
  rd_kafka_destroy(producer);
}

int main(int count, char **topics) {
  char error[512];
  rd_kafka_t *handle = rd_kafka_new(RD_KAFKA_PRODUCER, rd_kafka_conf_new(), error, sizeof error);
  if (handle == NULL) return 1;
  rd_kafka_mock_cluster_t *cluster = rd_kafka_mock_cluster_new(handle, 1);
  if (cluster == NULL) return 1;
  for (int at = 1; at < count; at++) rd_kafka_mock_topic_create(cluster, topics[at], 1, 1);
  const char *servers = rd_kafka_mock_cluster_bootstraps(cluster);
  printf("%s\n", servers);
  fflush(stdout);
  char line[512], topic[256], codec[16], value[256];
  int code;
  while (fgets(line, sizeof line, stdin) != NULL && line[0] != 'q') {
    if (sscanf(line, "t %255s %d", topic, &code) == 2) {
      rd_kafka_mock_push_request_errors(cluster, 0, 1, (rd_kafka_resp_err_t)code);
      printf("end\n");
      fflush(stdout);
    } else if (sscanf(line, "p %255s", topic) == 1) {
      print_topic(servers, topic);
    } else if (sscanf(line, "w %255s %15s %d %255s", topic, codec, &code, value) == 4) {
      write_batch(servers, topic, codec, code, value);
    }
  }
  rd_kafka_mock_cluster_destroy(cluster);
  rd_kafka_destroy(handle);
  return 0;
}
