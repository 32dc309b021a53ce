// Builds the netlink messages that `nft` would send, since no such tool is installed on the hosts.
// The kernel's headers linux/netfilter/nf_tables.h define the numbers; all integers inside
// attributes are big-endian, those in message headers are in host order.
#include "launcher/agent/nft_messages.h"

#include <arpa/inet.h>
#include <linux/netfilter.h>
#include <linux/netfilter/nf_tables.h>
#include <linux/netfilter/nfnetlink.h>
#include <linux/netlink.h>
#include <netinet/in.h>

#include <cstring>
#include <string_view>

#include "rendezvous/base/address.h"

namespace hora::launcher {

namespace {

template <typename T>
void append_raw(std::string& out, const T& value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

// Netlink aligns messages and attributes to four bytes; the length field excludes the padding.
void pad(std::string& out) { out.resize((out.size() + 3) / 4 * 4); }

std::string big_endian(std::uint32_t value) {
  std::string out;
  append_raw(out, htonl(value));
  return out;
}

std::string port(int value) {
  std::string out;
  append_raw(out, htons(static_cast<std::uint16_t>(value)));
  return out;
}

// --- attributes ----------------------------------------------------------------------------------

std::string attribute(int type, std::string_view value) {
  nlattr header{};
  header.nla_len = static_cast<std::uint16_t>(sizeof header + value.size());
  header.nla_type = static_cast<std::uint16_t>(type);
  std::string out;
  append_raw(out, header);
  out += value;
  pad(out);
  return out;
}

std::string nested(int type, std::string_view attributes) {
  return attribute(type | NLA_F_NESTED, attributes);
}

// Strings carry their terminating NUL.
std::string text(int type, const std::string& value) {
  return attribute(type, {value.c_str(), value.size() + 1});
}

std::string number(int type, std::uint32_t value) { return attribute(type, big_endian(value)); }

// --- expressions ---------------------------------------------------------------------------------

// A rule is a list of expressions: load something into a register, compare it, give a verdict. A
// comparison that fails ends the rule.
std::string expression(const std::string& name, const std::string& data) {
  return nested(NFTA_LIST_ELEM, text(NFTA_EXPR_NAME, name) + nested(NFTA_EXPR_DATA, data));
}

std::string load_meta(std::uint32_t key) {
  return expression("meta", number(NFTA_META_DREG, NFT_REG_1) + number(NFTA_META_KEY, key));
}

std::string load_payload(std::uint32_t base, std::uint32_t offset, std::size_t length) {
  return expression("payload", number(NFTA_PAYLOAD_DREG, NFT_REG_1) +
                                   number(NFTA_PAYLOAD_BASE, base) +
                                   number(NFTA_PAYLOAD_OFFSET, offset) +
                                   number(NFTA_PAYLOAD_LEN, static_cast<std::uint32_t>(length)));
}

std::string equals(std::string_view value) {
  return expression("cmp", number(NFTA_CMP_SREG, NFT_REG_1) + number(NFTA_CMP_OP, NFT_CMP_EQ) +
                               nested(NFTA_CMP_DATA, attribute(NFTA_DATA_VALUE, value)));
}

std::string verdict(std::uint32_t code) {
  return expression(
      "immediate",
      number(NFTA_IMMEDIATE_DREG, NFT_REG_VERDICT) +
          nested(NFTA_IMMEDIATE_DATA, nested(NFTA_DATA_VERDICT, number(NFTA_VERDICT_CODE, code))));
}

std::string is_byte(std::uint32_t key, char value) {
  return load_meta(key) + equals(std::string_view(&value, 1));
}

// Accepts TCP whose port field(s) at the offset in the header match: 0 is the source, 2 the
// destination.
std::string passes(std::uint32_t offset, const std::string& ports) {
  return is_byte(NFT_META_L4PROTO, IPPROTO_TCP) +
         load_payload(NFT_PAYLOAD_TRANSPORT_HEADER, offset, ports.size()) + equals(ports) +
         verdict(NF_ACCEPT);
}

// --- messages ------------------------------------------------------------------------------------

// The same rules apply to both directions, on the local input and output hooks.
struct Hook {
  const char* chain;
  std::uint32_t number;
  bool out;
};
constexpr Hook kHooks[] = {{"in", NF_INET_LOCAL_IN, false}, {"out", NF_INET_LOCAL_OUT, true}};

class Batch {
 public:
  void add(int type, int flags, std::uint8_t family, int resource, std::string_view attributes) {
    nlmsghdr header{};
    header.nlmsg_len =
        static_cast<std::uint32_t>(sizeof header + sizeof(nfgenmsg) + attributes.size());
    header.nlmsg_type = static_cast<std::uint16_t>(type);
    header.nlmsg_flags = static_cast<std::uint16_t>(NLM_F_REQUEST | flags);
    // Only the last message asks for an acknowledgement, under a number of its own.
    header.nlmsg_seq = (flags & NLM_F_ACK) != 0 ? kCutBatchAck : 0;
    append_raw(bytes_, header);
    append_raw(bytes_, nfgenmsg{family, NFNETLINK_V0, htons(static_cast<std::uint16_t>(resource))});
    bytes_ += attributes;
    pad(bytes_);
  }
  void table_message(int type, std::string_view attributes, int flags = 0) {
    add(NFNL_SUBSYS_NFTABLES << 8 | type, NLM_F_CREATE | flags, NFPROTO_INET, 0, attributes);
  }
  void rule(const std::string& table, const char* chain, const std::string& expressions) {
    table_message(NFT_MSG_NEWRULE,
                  text(NFTA_RULE_TABLE, table) + text(NFTA_RULE_CHAIN, chain) +
                      nested(NFTA_RULE_EXPRESSIONS, expressions),
                  NLM_F_APPEND);
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

// Drops packets from the other address on input, and to it on output.
Result<std::string> drops(const std::string& address, bool out) {
  const auto parsed = parse_ip_address(address);
  if (!parsed) return make_error(ErrorCode::kUsage, "'" + address + "' is no address to cut off");
  const std::size_t length = parsed->v6 ? 16 : 4;
  // The offset of the source address in the IP header; the destination follows it directly.
  const std::uint32_t source = parsed->v6 ? 8 : 12;
  const std::uint32_t offset = out ? source + static_cast<std::uint32_t>(length) : source;
  const std::string_view bytes(reinterpret_cast<const char*>(parsed->bytes.data()), length);
  return is_byte(NFT_META_NFPROTO, parsed->v6 ? NFPROTO_IPV6 : NFPROTO_IPV4) +
         load_payload(NFT_PAYLOAD_NETWORK_HEADER, offset, length) + equals(bytes) +
         verdict(NF_DROP);
}

}  // namespace

Result<std::string> cut_batch(const CutOrder& cut, const std::string& table, CutTable kind) {
  Batch batch;
  // The kernel applies a batch as one transaction: all of it or nothing.
  batch.add(NFNL_MSG_BATCH_BEGIN, 0, AF_UNSPEC, NFNL_SUBSYS_NFTABLES, {});
  const std::uint32_t flags =
      // An owned table (Linux 5.12) is removed when its socket closes. A dormant one has no effect.
      NFT_TABLE_F_OWNER | (kind == CutTable::kTrial ? NFT_TABLE_F_DORMANT : 0);
  batch.table_message(NFT_MSG_NEWTABLE,
                      text(NFTA_TABLE_NAME, table) + number(NFTA_TABLE_FLAGS, flags));
  for (const Hook& hook : kHooks) {
    batch.table_message(NFT_MSG_NEWCHAIN,
                        text(NFTA_CHAIN_TABLE, table) + text(NFTA_CHAIN_NAME, hook.chain) +
                            nested(NFTA_CHAIN_HOOK, number(NFTA_HOOK_HOOKNUM, hook.number) +
                                                        number(NFTA_HOOK_PRIORITY, 0)) +
                            text(NFTA_CHAIN_TYPE, "filter"));
    // The connections that control the job stay open in both directions. They come first, because
    // the first rule that matches decides.
    for (const auto& [client, server] : cut.control_links) {
      batch.rule(table, hook.chain, passes(0, port(client) + port(server)));
      batch.rule(table, hook.chain, passes(0, port(server) + port(client)));
    }
    if (cut.rendezvous_port != 0) {
      batch.rule(table, hook.chain, passes(0, port(cut.rendezvous_port)));
      batch.rule(table, hook.chain, passes(2, port(cut.rendezvous_port)));
    }
    for (const std::string& address : cut.addresses) {
      auto expressions = drops(address, hook.out);
      if (!expressions) return std::move(expressions).error();
      batch.rule(table, hook.chain, *expressions);
    }
  }
  // The last message repeats the table to ask for an answer; everything before it is done by then.
  batch.add(NFNL_SUBSYS_NFTABLES << 8 | NFT_MSG_NEWTABLE, NLM_F_ACK, NFPROTO_INET, 0,
            text(NFTA_TABLE_NAME, table) + number(NFTA_TABLE_FLAGS, flags));
  batch.add(NFNL_MSG_BATCH_END, 0, AF_UNSPEC, NFNL_SUBSYS_NFTABLES, {});
  return batch.take();
}

// Returns 0 for success, an errno for a refusal, and -1 for a message that is no answer to the
// batch. An error in the middle carries the number of the message that failed.
int batch_answer(const std::string& bytes) {
  nlmsghdr header{};
  nlmsgerr answer{};
  if (bytes.size() < NLMSG_HDRLEN + sizeof answer) return -1;
  std::memcpy(&header, bytes.data(), sizeof header);
  std::memcpy(&answer, bytes.data() + NLMSG_HDRLEN, sizeof answer);
  if (header.nlmsg_type != NLMSG_ERROR) return -1;
  if (answer.error == 0 && answer.msg.nlmsg_seq != kCutBatchAck) return -1;
  return -answer.error;
}

}  // namespace hora::launcher
